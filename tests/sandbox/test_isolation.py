"""What a command can see and change: its workspace, and nothing of this machine."""

import os
import socket
import sys
from pathlib import Path

import pytest

from patchgym.errors import SandboxError
from tests.sandbox.box import Box, Boxes

CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3); print('reached')"


def test_a_listener_on_this_machine_is_out_of_reach(box: Box) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = box.exec("python", "-c", CONNECT, "127.0.0.1", str(server.getsockname()[1]))
    assert done.exit_code == 1
    assert b"refused" in done.stderr


def test_the_network_is_out_of_reach(box: Box) -> None:
    done = box.exec("python", "-c", CONNECT, "192.0.2.1", "53")
    assert done.exit_code == 1
    assert b"unreachable" in done.stderr


def test_a_loopback_of_its_own_works(box: Box) -> None:
    script = (
        "import socket; s = socket.create_server(('localhost', 0));"
        "c = socket.create_connection(s.getsockname()); s.accept()[0].sendall(b'hi'); print(c.recv(2))"
    )
    done = box.exec("python", "-c", script)
    assert done.stdout == b"b'hi'\n", done


@pytest.mark.parametrize("path", ["/etc/shadow", "/home", "/var", "/opt", "/sys", "/run", "/boot", "/mnt", "/srv"])
def test_host_paths_are_not_there(box: Box, path: str) -> None:
    shown = box.sh(f"test ! -e {path} || find {path} ! -type d ! -path '/run/patchgym/*'")
    assert shown.stdout == b"", shown


def test_a_file_beside_the_sandbox_is_not_there(box: Box, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    assert box.exec("cat", str(tmp_path / "secret")).exit_code != 0


def test_of_the_interpreters_home_only_its_prefix_is_there(box: Box) -> None:
    prefix = Path(sys.base_prefix).resolve()
    if prefix.is_relative_to("/usr"):
        pytest.skip("the interpreter is the system's")
    for folder in (path for path in prefix.parents if path != Path("/")):
        shown = set(box.out(f"ls -A {folder}").split())
        assert len(shown) <= 2, f"{folder} shows {shown}"


def test_packages_installed_on_this_machine_are_not_there(box: Box) -> None:
    """The package under test may be among them, mended."""
    on_host = [sys.base_prefix, "/usr", "/usr/local"]
    pattern = "lib*/python3*/*-packages"
    assert any(any(folder.iterdir()) for prefix in on_host for folder in Path(prefix).glob(pattern))
    script = f"import glob; print([p for r in {on_host!r} for p in glob.glob(r + '/{pattern}/*')])"
    done = box.exec("python", "-c", script)
    assert done.stdout == b"[]\n", done


def test_the_users_of_this_machine_are_not_told(box: Box) -> None:
    assert box.out("cut -d: -f1 /etc/passwd").split() == ["root", "user"]


def test_variables_of_this_process_are_not_there(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATCHGYM_TEST_SECRET", "secret")
    names = {line.partition("=")[0] for line in box.out("env").splitlines()}
    always = {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "PWD"}
    assert names - {"OLDPWD", "_", "SHLVL", "HOSTNAME"} == always


def test_processes_of_this_machine_are_not_there(box: Box) -> None:
    assert box.sh(f"test -e /proc/{os.getpid()}").exit_code == 1 or os.getpid() < 10
    assert len([name for name in box.out("ls /proc").split() if name.isdigit()]) <= 4


@pytest.mark.parametrize("folder", ["/", "/usr", "/usr/bin", "/etc", "/dev", "/proc", "/lib"])
def test_the_system_is_read_only(box: Box, folder: str) -> None:
    assert box.sh(f"touch {folder}/intruder").exit_code != 0


@pytest.mark.parametrize("name", ["kernel/core_pattern", "vm/overcommit_memory", "kernel/randomize_va_space"])
def test_a_setting_of_the_kernel_cannot_be_changed(box: Box, name: str) -> None:
    """Where root runs us, root's permissions on these files hold inside too: only a read-only mount keeps them."""
    before = Path("/proc/sys", name).read_text()
    assert box.sh(f"cat /proc/sys/{name} > same; cat same > /proc/sys/{name}").exit_code != 0
    assert Path("/proc/sys", name).read_text() == before


def test_the_environment_is_read_only(box: Box, boxes: Boxes) -> None:
    done = box.sh(f"touch {boxes.environment}/bin/intruder")
    assert done.exit_code != 0
    assert b"Read-only" in done.stderr


def test_the_environments_python_comes_first(box: Box, boxes: Boxes) -> None:
    done = box.exec("python", "-c", "import sys; print(sys.prefix, sys.version_info[:2] , sep='|')")
    assert done.stdout.decode().strip() == f"{boxes.environment}|{sys.version_info[:2]}"


def test_tmp_lives_as_long_as_its_sandbox(box: Box, boxes: Boxes, tree: str) -> None:
    box.out("echo x > /tmp/a; echo x > /dev/shm/b")
    assert box.out("cat /tmp/a /dev/shm/b") == "x\nx\n"
    assert boxes.open(tree).sh("test -e /tmp/a || test -e /dev/shm/b").exit_code == 1


def test_the_user_has_no_capability_and_gains_none(box: Box) -> None:
    status = dict(line.split(":\t", 1) for line in box.out("cat /proc/self/status").splitlines() if ":\t" in line)
    assert {status[name].strip("0") for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {""}
    assert status["NoNewPrivs"] == "1"
    user = 1000 if box.sandbox.kind == "namespace" else os.geteuid()
    assert status["Uid"].split() == [str(user)] * 4


def test_no_user_namespace_can_be_made(box: Box) -> None:
    script = "import ctypes; raise SystemExit(ctypes.CDLL(None).unshare(0x10000000) == 0)"
    assert box.exec("python", "-c", script).exit_code == 0


def test_a_mount_is_read_only_at_its_place(boxes: Boxes, tree: str, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "file").write_text("given\n")
    box = boxes.open(tree, mounts={"/given": tmp_path / "given"})
    assert box.out("cat /given/file") == "given\n"
    assert box.sh("echo x > /given/file").exit_code != 0


@pytest.mark.parametrize("inside", ["/workspace/x", "/workspace", "relative", "/", "/x/../workspace/y"])
def test_a_mount_over_the_workspace_is_refused(boxes: Boxes, tree: str, tmp_path: Path, inside: str) -> None:
    with pytest.raises(SandboxError, match="not outside the workspace"):
        boxes.open(tree, mounts={inside: tmp_path})


def test_a_directory_that_is_no_environment_is_refused(boxes: Boxes, tree: str, tmp_path: Path) -> None:
    boxes.environment = tmp_path
    with pytest.raises(SandboxError, match="no virtual environment"):
        boxes.open(tree)
