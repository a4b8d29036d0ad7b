"""What is left behind: nothing, however it ended."""

import asyncio
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from patchgym.content import Entry, ObjectStore
from patchgym.errors import SandboxError
from patchgym.sandbox import NamespaceSandboxes, SandboxSpec
from patchgym.sandbox.bwrap import find_bwrap, fresh_arguments, overlay_arguments, part_arguments
from patchgym.sandbox.limits import find_mechanism
from patchgym.sandbox.scratch import Scratch, sweep
from patchgym.sandbox.system import system_parts
from tests.sandbox.box import Box, Boxes, processes_with


def groups_named(name: str) -> list[Path]:
    return [group for parent in find_mechanism().parents for group in parent.glob(f"{name}*")]


def eventually(true: Callable[[], bool]) -> bool:
    until = time.monotonic() + 10
    while not true() and time.monotonic() < until:
        time.sleep(0.02)
    return true()


def test_after_close_nothing_is_left(box: Box) -> None:
    marker = f"marker-{secrets.token_hex(8)}"
    box.exec("sh", "-c", "mkdir -p a/b; chmod 000 a; setsid sleep 1000 &", marker)
    name, folder = box.sandbox._name, box.sandbox._overlay.folder
    assert folder.is_dir()
    assert box.sandbox.kind == "docker" or bool(groups_named(name)) == (find_mechanism().kind != "rlimit")
    descriptors = set(os.listdir("/proc/self/fd"))
    box.close()
    box.close()
    assert not folder.exists()
    assert groups_named(name) == []
    assert processes_with(marker) == []
    assert name not in Path("/proc/self/mountinfo").read_text()
    assert set(os.listdir("/proc/self/fd")) <= descriptors


def test_commands_leave_no_descriptor_open(box: Box) -> None:
    box.exec("true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        box.exec("true", report=True, stdin=b"x" * 100_000)
        box.exec("sleep", "10", timeout_s=0.05)
        box.exec("no-such-program")
        box.exec("nul\0")
        box.read("README.md")
        box.write("deep/er/file", b"x")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_cancelled_command_is_dead_before_the_cancellation_goes_on(box: Box) -> None:
    marker = f"marker-{secrets.token_hex(8)}"

    async def cancelled() -> None:
        task = asyncio.ensure_future(box.sandbox.exec(["sh", "-c", "setsid sleep 1000 & sleep 1000", marker]))
        await asyncio.to_thread(eventually, lambda: len(processes_with(marker)) >= 3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert processes_with(marker) == []

    box.wait(cancelled())
    assert box.sh("echo fine").stdout == b"fine\n"


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.002, 0.004, 0.008])
def test_a_command_cancelled_while_it_starts_never_gets_loose(box: Box, after_s: float) -> None:
    marker = f"marker-{secrets.token_hex(8)}"

    async def cancelled() -> None:
        task = asyncio.ensure_future(box.sandbox.exec(["sh", "-c", "sleep 1000", marker]))
        await asyncio.sleep(after_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    box.wait(cancelled())
    assert eventually(lambda: processes_with(marker) == [])
    assert box.exec("true").exit_code == 0


def test_closing_ends_a_running_command(box: Box) -> None:
    began = time.monotonic()

    async def close_meanwhile() -> None:
        task = asyncio.ensure_future(box.sandbox.exec(["sleep", "1000"]))
        await asyncio.sleep(0.1)
        await box.sandbox.close()
        with pytest.raises(SandboxError, match="closed"):
            await task

    box.wait(close_meanwhile())
    assert time.monotonic() - began < 10
    assert not box.sandbox._overlay.folder.exists()


def test_a_sandbox_cancelled_while_it_is_made_leaves_nothing(boxes: Boxes, tree: str, tmp_path: Path) -> None:
    factory = NamespaceSandboxes(boxes.store, cache=boxes.factory._cache, scratch=tmp_path / "scratch")

    async def cancelled() -> None:
        task = asyncio.ensure_future(factory.create(SandboxSpec(tree=tree)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    boxes.runner.run(cancelled())
    (folder,) = (tmp_path / "scratch").iterdir()
    assert groups_named(folder.name) == []
    assert sorted(os.listdir(folder)) == ["etc", "groups"]
    factory.close()


class _Slow(ObjectStore):
    """Takes its time over each file and counts those that it is done with."""

    done = 0

    def entry_at(self, folder: int, name: str) -> Entry | None:
        time.sleep(0.3)
        entry = super().entry_at(folder, name)
        self.done += 1
        return entry


def test_a_cancelled_snapshot_is_over_before_the_cancellation_goes_on(boxes: Boxes, tmp_path: Path) -> None:
    store = _Slow(tmp_path / "objects")
    factory = NamespaceSandboxes(store, cache=tmp_path / "cache", scratch=tmp_path / "scratch")

    async def cancelled() -> None:
        sandbox = await factory.create(SandboxSpec(tree=store.write_tree({})))
        await sandbox.write("file", b"x")
        task = asyncio.ensure_future(sandbox.snapshot())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert store.done == 1
        await sandbox.close()

    boxes.runner.run(cancelled())
    factory.close()


def test_a_factory_that_is_gone_leaves_no_folder(boxes: Boxes, tree: str, tmp_path: Path) -> None:
    factory = NamespaceSandboxes(boxes.store, cache=boxes.factory._cache, scratch=tmp_path / "scratch")
    sandbox = boxes.runner.run(factory.create(SandboxSpec(tree=tree)))
    boxes.runner.run(sandbox.close())
    assert len(os.listdir(tmp_path / "scratch")) == 1
    factory.close()
    factory.close()
    assert os.listdir(tmp_path / "scratch") == []


AS_FIRST_PROCESS = """
import asyncio, os, sys
from pathlib import Path
from patchgym.content import ObjectStore
from patchgym.sandbox import NamespaceSandboxes, SandboxSpec

async def main(folder):
    store = ObjectStore(folder / "objects")
    factory = NamespaceSandboxes(store, cache=folder / "cache", scratch=folder / "scratch")
    sandbox = await factory.create(SandboxSpec(tree=store.write_tree({})))
    before = processes()
    for _ in range(5):
        await sandbox.exec(["sh", "-c", "sleep 100 &"])
    await sandbox.close()
    factory.close()
    print(os.getpid(), processes() - before)

def processes():
    return {name for name in os.listdir("/proc") if name.isdigit()}

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="NOT RUN: needs root and unshare")
@pytest.mark.parametrize("factory", ["namespace"], indirect=True)
def test_as_the_first_process_of_a_container_no_zombies_pile_up(factory: NamespaceSandboxes, tmp_path: Path) -> None:
    program = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", AS_FIRST_PROCESS, str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.stdout == "1 set()\n", done


RUNNER = """
import asyncio, sys
from pathlib import Path
from patchgym.content import ObjectStore
from patchgym.sandbox import NamespaceSandboxes, SandboxSpec

async def main(folder, marker):
    store = ObjectStore(folder / "objects")
    factory = NamespaceSandboxes(store, cache=folder / "cache", scratch=folder / "scratch")
    sandbox = await factory.create(SandboxSpec(tree=store.write_tree({})))
    print(sandbox._name, flush=True)
    await sandbox.exec(["sh", "-c", "mkdir -p a/b; setsid sleep 1000 & sleep 1000", marker], timeout_s=100)

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


@contextmanager
def killed_runner(folder: Path, marker: str, ready: Callable[[str], bool]) -> Iterator[str]:
    """A process that runs a command and is killed once ``ready``; gives the name of its sandbox."""
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, folder, marker], stdout=subprocess.PIPE, text=True)
    assert runner.stdout is not None
    with runner.stdout:
        name = runner.stdout.readline().strip()
        assert eventually(lambda: ready(name))
        yield name
        runner.kill()
        runner.wait()


@pytest.mark.parametrize("factory", ["namespace"], indirect=True)
def test_commands_die_with_a_killed_runner_and_a_living_one_keeps_its_own(
    boxes: Boxes, tree: str, tmp_path: Path
) -> None:
    marker = f"marker-{secrets.token_hex(8)}"
    scratch = tmp_path / "scratch"
    living = NamespaceSandboxes(boxes.store, cache=boxes.factory._cache, scratch=scratch)
    mine = boxes.runner.run(living.create(SandboxSpec(tree=tree)))

    def owner(name: str) -> Path:
        return scratch / name.rpartition("-")[0]

    with killed_runner(tmp_path, marker, lambda name: (owner(name) / name / "upper" / "a" / "b").is_dir()) as name:
        sweep(scratch)
        assert owner(name).is_dir()
    assert eventually(lambda: processes_with(marker) == [])
    assert owner(name).is_dir()
    sweep(scratch)
    assert not owner(name).exists()
    assert groups_named(name) == []
    assert boxes.runner.run(mine.exec(["true"])).exit_code == 0
    boxes.runner.run(mine.close())
    living.close()
    assert os.listdir(scratch) == []


def slept(seconds: float) -> bool:
    time.sleep(seconds)
    return True


@pytest.mark.parametrize("after_s", [0.0, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064])
@pytest.mark.parametrize("factory", ["namespace"], indirect=True)
def test_a_runner_killed_at_any_instant_leaves_nothing_to_the_next_sweep(
    factory: NamespaceSandboxes, tmp_path: Path, after_s: float
) -> None:
    marker = f"marker-{secrets.token_hex(8)}"
    with killed_runner(tmp_path, marker, lambda name: slept(after_s)) as name:
        pass

    def swept() -> bool:
        sweep(tmp_path / "scratch")  # finds the folder in use while a child that is not yet a program shares its lock
        return processes_with(marker) == [] == groups_named(name) and processes_with(f"{tmp_path}/scratch/") == []

    assert eventually(swept)
    assert os.listdir(tmp_path / "scratch") == []


@pytest.mark.parametrize("factory", ["namespace"], indirect=True)
def test_a_sweep_ends_what_still_runs_in_a_dead_folder(factory: NamespaceSandboxes, tmp_path: Path) -> None:
    dead = tmp_path / "patchgym-1-deadbeef"
    layers = [dead / name for name in ("lower", "upper", "work")]
    for layer in layers:
        layer.mkdir(parents=True)
    (dead / "groups").touch()
    options = [
        *part_arguments(system_parts(Path("/usr"))),
        *fresh_arguments(1 << 20),
        *overlay_arguments(layers[:1], *layers[1:]),
    ]
    marker = f"marker-{secrets.token_hex(8)}"
    command = [
        str(find_bwrap()),
        "--unshare-all",
        "--die-with-parent",
        *options,
        "--",
        "sh",
        "-c",
        "trap '' TERM; sleep 1000; :",
        marker,
    ]
    with subprocess.Popen(command) as orphan:
        try:
            assert eventually(lambda: len(processes_with(marker)) >= 3)
            sweep(tmp_path)
            assert processes_with(marker) in ([], [orphan.pid])
            assert not dead.exists()
        finally:
            orphan.kill()


def test_a_new_scratch_folder_sweeps_dead_ones_and_nothing_else(tmp_path: Path) -> None:
    dead, unborn = tmp_path / "patchgym-1-deadbeef", tmp_path / "patchgym-1-deadbee0"
    (dead / "a" / "b").mkdir(parents=True)
    (dead / "groups").touch()
    unborn.mkdir()
    others = [tmp_path / name for name in ("patchgym-x-deadbeef", "patchgym-1", "patchgym-1-deadbeef-1")]
    others.append(tmp_path / "patchgym-1-deadbee1")
    for folder in others:
        (folder / "a").mkdir(parents=True)
    scratch = Scratch(tmp_path, find_mechanism())
    assert sorted(tmp_path.iterdir()) == sorted([*others, scratch.path])
    scratch.close()
    assert sorted(tmp_path.iterdir()) == sorted(others)
