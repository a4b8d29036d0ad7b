"""Any sequence of edits, made in a sandbox and in a plain directory alike, ends in the same tree."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchgym.content import apply_patch
from tests.sandbox.box import Boxes

SCRIPT = r"""
import json, os, shutil, sys

def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)

def write(path, text):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(text.encode("latin-1"))

def replace(path, text):
    remove(path)
    write(os.path.join(path, "inside"), text)

def link(path, target):
    os.symlink(target, path)

def move(path, target):
    if not os.path.lexists(target):
        shutil.move(path, target)

def mode(path, bits):
    if os.path.isfile(path) and not os.path.islink(path):  # what a folder's mode forbids, root does all the same
        os.chmod(path, bits)

edits = {"remove": remove, "write": write, "replace": replace, "link": link, "move": move, "mode": mode}
for name, *arguments in json.load(sys.stdin):
    try:
        edits[name](*arguments)
    except (OSError, shutil.Error):
        pass
"""

NAMES = st.sampled_from(["a", "b", "d", "new"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
TEXTS = st.sampled_from(["", "text\n", "no newline", "one\r\ntwo\r\n", "\0\xff", "caf\xe9\n"])
EDITS = st.one_of(
    st.tuples(st.just("write"), PATHS, TEXTS),
    st.tuples(st.just("remove"), PATHS),
    st.tuples(st.just("replace"), PATHS, TEXTS),
    st.tuples(st.just("link"), PATHS, PATHS),
    st.tuples(st.just("move"), PATHS, PATHS),
    st.tuples(st.just("mode"), PATHS, st.sampled_from([0o755, 0o644])),
)
TREES = st.dictionaries(PATHS, TEXTS, max_size=8)


def fill(folder: Path, files: dict[str, str]) -> None:
    """Write what fits: a path below another file does not."""
    for path, text in files.items():
        place = folder / path
        if not any(parent.is_file() for parent in place.parents) and not place.is_dir():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text.encode("latin-1"))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=TREES, start=TREES, edits=st.lists(st.lists(EDITS, max_size=6), min_size=1, max_size=3))
def test_edits_in_a_sandbox_and_in_a_plain_directory_end_alike(
    boxes: Boxes, before: dict[str, str], start: dict[str, str], edits: list[list[tuple[str, ...]]]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        plain, near = Path(name, "plain"), Path(name, "near")
        for folder, files in ((near, before), (plain, start)):
            folder.mkdir()
            fill(folder, files)
        base, tree = boxes.store.ingest(near), boxes.store.ingest(plain)
        box = boxes.open(tree, base=base)
        assert box.snapshot() == tree
        for some in edits:
            given_edits = json.dumps(some).encode()
            assert box.exec("python", "-c", SCRIPT, stdin=given_edits).exit_code == 0
            subprocess.run([sys.executable, "-c", SCRIPT], cwd=plain, input=given_edits, check=True)
            assert box.snapshot() == boxes.store.ingest(plain)
        after = box.snapshot()
        assert apply_patch(boxes.store, tree, box.diff()) == after
        twin = box.fork()
        assert twin.snapshot() == after
        twin.close()
        box.close()
        shutil.rmtree(plain)
