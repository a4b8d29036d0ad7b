"""The workspace: what stays, what a snapshot holds, what ``read`` and ``write`` reach."""

import os
import shutil
import time
from pathlib import Path

import pytest

from patchgym.content import apply_patch
from patchgym.content.objects import EXECUTABLE, SYMLINK
from patchgym.errors import StorageError
from patchgym.sandbox import NamespaceSandboxes, SandboxSpec
from patchgym.sandbox.layers import workspace_layers
from tests.sandbox.box import Box, Boxes, Counting
from tests.sandbox.conftest import FILES


def test_a_new_sandbox_is_its_tree(box: Box, tree: str) -> None:
    assert box.snapshot() == tree
    assert box.diff() == ""
    assert box.out("cat package/core.py").encode() == FILES["package/core.py"]


def test_a_change_stays_for_the_next_command(box: Box) -> None:
    box.out("echo more >> README.md")
    assert box.out("cat README.md") == "hello\nmore\n"


def test_a_change_is_in_no_other_sandbox(box: Box, boxes: Boxes, tree: str) -> None:
    other = boxes.open(tree)
    box.out("echo changed > README.md; rm package/core.py")
    assert other.out("cat README.md; cat package/core.py").startswith("hello\ndef answer")
    assert boxes.open(tree).snapshot() == tree


EDITS = {
    "a changed file": "echo changed > README.md",
    "a new file": "echo new > package/new.py",
    "a new empty file": "touch empty",
    "a new binary file": "printf '\\000\\377\\r\\n' > binary",
    "line endings": "printf 'one\\ntwo\\n' > package/data/windows.txt",
    "a removed file": "rm package/core.py",
    "a removed folder": "rm -r package",
    "a renamed file": "mv package/core.py package/heart.py",
    "a renamed folder": "mv package parcel",
    "a mode": "chmod +x package/core.py",
    "a mode on and off": "chmod +x README.md; chmod -x README.md",
    "a symbolic link": "ln -s package/core.py link",
    "a link to nowhere": "ln -s /nowhere link",
    "a file replaced by a link": "ln -sf core.py package/__init__.py",
    "a hard link": "ln README.md again",
    "a folder replaced by a new one": "rm -r package; mkdir package; echo x > package/other.py",
    "a folder replaced by a file": "rm -r package; echo x > package",
    "a file replaced by a folder": "rm README.md; mkdir README.md; echo x > README.md/inside",
    "an empty folder": "mkdir hollow",
    "a folder emptied": "rm package/data/*",
    "a name with spaces and newlines": "echo x > 'a b\nc'",
    "a name that is no text": "echo x > \"$(printf 'caf\\351')\"",
    "everything removed": "rm -r ./*",
    "a file locked": "echo x > locked; chmod 000 locked",
    "a folder locked": "mkdir vault; echo x > vault/x; chmod 000 vault",
    "nothing that git keeps": "mkdir .git package/__pycache__; touch .git/x package/__pycache__/x.pyc; mkfifo p",
    "a file replaced by a pipe": "rm README.md; mkfifo README.md",
    "a deep new folder": "mkdir -p a/b/c/d/e; echo x > a/b/c/d/e/f",
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_a_snapshot_after(edit: str, box: Box, boxes: Boxes, tree: str, tmp_path: Path) -> None:
    """... is the tree of an equal directory, and the diff leads from the base to it."""
    box.out(edit)
    plain = tmp_path / "plain"
    plain.mkdir()
    boxes.store.checkout(tree, plain)
    assert os.waitstatus_to_exitcode(os.system(f"cd {plain} && {{ {edit}\n}}")) == 0
    expected = boxes.store.ingest(plain)
    assert box.snapshot() == expected
    assert apply_patch(boxes.store, tree, box.diff()) == expected


def test_only_files_that_changed_since_the_last_snapshot_are_read(box: Box, tmp_path: Path) -> None:
    store = Counting(tmp_path / "objects")
    box.out("for i in 1 2 3 4 5; do echo $i > file$i; done")
    time.sleep(0.1)
    box.sandbox._overlay.changes(store)
    assert len(store.read) == 5
    box.out("echo x > file3; chmod +x file4; rm file5")
    box.sandbox._overlay.changes(store)
    assert sorted(store.read[5:]) == ["file3", "file4"]


def test_a_change_of_equal_size_at_once_is_seen(box: Box) -> None:
    trees = set()
    for index in range(20):
        box.write("README.md", f"{index:06}".encode())
        trees.add(box.snapshot())
    assert len(trees) == 20


@pytest.mark.parametrize(("levels", "name"), [(1000, "d" * 50), (150, "d")], ids=["long", "many"])
def test_folders_too_deep_are_left_out_and_removed_at_the_end(box: Box, tree: str, levels: int, name: str) -> None:
    script = f"import os\nfor i in range({levels}):\n os.mkdir('{name}')\n os.chdir('{name}')\nopen('f', 'w').close()"
    assert box.exec("python", "-c", script).exit_code == 0
    assert box.snapshot() == tree
    folder = box.sandbox._overlay.folder
    box.close()
    assert not folder.exists()


@pytest.mark.parametrize("removed", [["package/core.py"], ["package/data/table.bin", "package/data/windows.txt"]])
def test_a_sandbox_over_a_base_is_its_tree(boxes: Boxes, tree: str, tmp_path: Path, removed: list[str]) -> None:
    changed = tmp_path / "changed"
    changed.mkdir()
    boxes.store.checkout(tree, changed)
    for path in removed:
        (changed / path).unlink()
    (changed / "README.md").unlink()
    (changed / "README.md").mkdir()
    (changed / "README.md" / "inside").write_text("x\n")
    (changed / "package" / "__init__.py").chmod(0o755)
    wanted = boxes.store.ingest(changed)
    box = boxes.open(wanted, base=tree)
    assert len(box.sandbox._overlay.lowers) == 2
    assert box.snapshot() == wanted
    assert box.diff() == ""
    listed = box.out("find . -type f -o -type d | sort").split()
    assert listed == boxes.open(wanted).out("find . -type f -o -type d | sort").split()
    box.out("rm -rf README.md package/data; echo x > package/new")
    (changed / "README.md" / "inside").unlink()
    shutil.rmtree(changed / "package" / "data")
    (changed / "package" / "new").write_text("x\n")
    assert box.snapshot() == boxes.store.ingest(changed)
    assert apply_patch(boxes.store, wanted, box.diff()) == box.snapshot()


def test_a_checkout_is_made_once_and_shared(boxes: Boxes, tree: str, tmp_path: Path) -> None:
    first = workspace_layers(boxes.store, tmp_path, tree, None)
    made = first[0].stat().st_ino
    assert workspace_layers(boxes.store, tmp_path, tree, None)[0].stat().st_ino == made


def test_a_fork_starts_as_its_origin_and_goes_its_own_way(box: Box, boxes: Boxes) -> None:
    box.out(
        "rm -r package; mkdir package; echo 1 > package/one; ln -s one package/link; chmod +x README.md; rm README.md"
    )
    twin = box.fork()
    try:
        assert twin.snapshot() == box.snapshot()
        assert twin.out("ls -A . package") == box.out("ls -A . package")
        twin.out("echo 2 > package/two")
        box.out("echo 3 > package/three")
        assert (box.out("ls package"), twin.out("ls package")) == ("link\none\nthree\n", "link\none\ntwo\n")
    finally:
        twin.close()


def test_a_fork_keeps_times_so_that_nothing_is_built_anew(box: Box) -> None:
    box.out("echo x > made; touch -d 2001-02-03T04:05:06Z made")
    twin = box.fork()
    try:
        assert twin.out("date -u -r made +%F") == "2001-02-03\n"
    finally:
        twin.close()


def test_read_gives_what_a_command_wrote_and_what_was_there(box: Box) -> None:
    box.out("printf 'a\\r\\n\\377' > raw")
    assert box.read("raw") == b"a\r\n\xff"
    assert box.read("package/core.py") == FILES["package/core.py"]
    assert box.read("/workspace/./package/../README.md") == b"hello\n"


def test_what_was_written_is_there_for_commands(box: Box) -> None:
    box.write("new/folder/file", b"\0\xff")
    box.write("package/core.py", b"short\n")
    assert box.sh("cat new/folder/file").stdout == b"\0\xff"
    assert box.out("cat package/core.py; ls package") == "short\n__init__.py\ncore.py\ndata\n"


def test_a_written_file_keeps_its_mode_and_a_new_one_is_plain(box: Box, boxes: Boxes) -> None:
    box.out("chmod +x README.md")
    box.write("README.md", b"x")
    box.write("other", b"x")
    entries = boxes.store.entries(box.snapshot())
    assert (entries["README.md"].mode, entries["other"].mode) == (EXECUTABLE, 0o100644)


def test_writing_where_a_folder_was_removed_does_not_bring_it_back(box: Box) -> None:
    box.out("rm -r package")
    box.write("package/new.py", b"x")
    assert box.out("ls -A package") == "new.py\n"
    with pytest.raises(FileNotFoundError):
        box.read("package/core.py")


def test_a_removed_file_is_not_read_and_can_be_written_again(box: Box) -> None:
    box.out("rm README.md")
    with pytest.raises(FileNotFoundError):
        box.read("README.md")
    box.write("README.md", b"again")
    assert box.out("cat README.md") == "again"


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("nowhere", FileNotFoundError),
        ("package", IsADirectoryError),
        ("", IsADirectoryError),
        ("README.md/x", NotADirectoryError),
        ("../etc/passwd", PermissionError),
        ("/etc/passwd", PermissionError),
        ("package/../../etc/passwd", PermissionError),
        ("/workspace-not/x", PermissionError),
        ("nul\0byte", FileNotFoundError),
        ("lone \ud83d surrogate", FileNotFoundError),
        ("nowhere/../README.md", FileNotFoundError),
    ],
)
def test_a_path_that_is_no_file_of_the_workspace(box: Box, path: str, error: type[OSError]) -> None:
    with pytest.raises(error):
        box.read(path)


LINKS = {
    "absolute": "ln -s {host} link",
    "up and out": "ln -s ../../../../../../../../../{host} link",
    "through a folder": "ln -s {folder} out; ln -s out/secret link",
    "in a chain": "ln -s {host} one; ln -s one two; ln -s two link",
    "absolute and inside, then out": "ln -s {host} one; ln -s /workspace/one link",
    "replacing a file of the base": "ln -sf {host} README.md; ln -s README.md link",
    "to itself": "ln -s link link",
}


@pytest.mark.parametrize("attack", LINKS.values(), ids=LINKS.keys())
def test_a_link_out_of_the_workspace_is_not_followed(box: Box, tmp_path: Path, attack: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    box.out(attack.format(host=secret, folder=tmp_path))
    with pytest.raises(PermissionError):
        box.read("link")
    with pytest.raises(PermissionError):
        box.write("link", b"overwritten")
    assert secret.read_text() == "secret"


def test_nothing_is_made_through_a_linked_folder(box: Box, tmp_path: Path) -> None:
    box.out(f"ln -s {tmp_path} out; rm -r package; ln -s {tmp_path} package")
    for path in ("out/planted", "out/a/planted", "package/planted"):
        with pytest.raises(PermissionError):
            box.write(path, b"x")
    assert "planted" not in os.listdir(tmp_path)


def test_a_link_inside_the_workspace_is_followed(box: Box) -> None:
    box.out("ln -s package/core.py a; ln -s /workspace/README.md b; ln -s ../README.md package/c; ln -s package d")
    assert (box.read("a"), box.read("b")) == (FILES["package/core.py"], FILES["README.md"])
    assert box.read("d/c") == FILES["README.md"]
    box.write("d/core.py", b"new")
    assert box.out("cat package/core.py; readlink d") == "newpackage\n"


def test_a_pipe_is_not_read(box: Box) -> None:
    box.out("mkfifo pipe")
    with pytest.raises(PermissionError):
        box.read("pipe")


def test_a_link_is_stored_as_a_link(box: Box, boxes: Boxes) -> None:
    box.out("ln -s /etc/passwd link")
    entry = boxes.store.entries(box.snapshot())["link"]
    assert (entry.mode, boxes.store.get(entry.id)) == (SYMLINK, b"/etc/passwd")


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT RUN: only root can mount a small disk")
def test_a_full_disk_is_named(boxes: Boxes, tree: str, tmp_path: Path) -> None:
    assert os.system(f"mount -t tmpfs -o size=1m tmpfs {tmp_path}") == 0
    try:
        factory = NamespaceSandboxes(boxes.store, cache=boxes.factory._cache, scratch=tmp_path)
        sandbox = boxes.runner.run(factory.create(SandboxSpec(tree=tree)))
        with pytest.raises(StorageError, match="full"):
            boxes.runner.run(sandbox.write("big", b"x" * 2_000_000))
        assert boxes.runner.run(sandbox.snapshot()) == tree
        boxes.runner.run(sandbox.close())
        factory.close()
    finally:
        os.system(f"umount {tmp_path}")
