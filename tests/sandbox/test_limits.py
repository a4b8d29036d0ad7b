"""Ceilings on time, memory, processes, file size and output."""

import asyncio
import hashlib
import secrets
import signal
import time

import pytest

from patchgym.sandbox import Ending, ResourceLimits
from patchgym.sandbox.limits import is_memory
from tests.sandbox.box import Box, Boxes, processes_with

SMALL = ResourceLimits(memory_bytes=128 * 1024**2, processes=40, file_bytes=1_000_000, stream_bytes=1000)


@pytest.fixture
def small(boxes: Boxes, tree: str) -> Box:
    """A sandbox with low limits."""
    return boxes.open(tree, limits=SMALL)


def test_a_time_out_ends_the_command_in_time(box: Box) -> None:
    began = time.monotonic()
    done = box.sh("echo before; sleep 1000", timeout_s=0.3)
    assert (done.ending, done.exit_code, done.stdout) == (Ending.TIMED_OUT, None, b"before\n")
    assert done.timed_out
    assert time.monotonic() - began < 5


def test_a_time_out_kills_every_descendant(box: Box) -> None:
    marker = f"marker-{secrets.token_hex(8)}"
    script = f"""
        trap '' TERM INT HUP
        sh -c 'sleep 1000; :' {marker} &
        (setsid sh -c 'setsid sh -c "sleep 1000; :" {marker} &' {marker} &) &
        touch ready
        sleep 1000
    """
    done = box.sh(script, timeout_s=0.5)
    assert done.timed_out
    assert box.out("ls ready") == "ready\n"
    assert processes_with(marker) == []


def test_what_a_command_leaves_behind_is_dead_when_it_returns(box: Box) -> None:
    marker = f"marker-{secrets.token_hex(8)}"
    script = f"for i in 1 2 3; do setsid sh -c 'while :; do echo x >> grows; done' {marker} & done; sleep 0.1"
    box.sh(script)
    assert processes_with(marker) == []
    size = len(box.read("grows"))
    assert size == len(box.read("grows"))


def test_a_command_may_run_until_its_time_and_no_longer_matters_to_the_next(box: Box) -> None:
    assert box.sh("sleep 1000", timeout_s=0.1).timed_out
    assert box.sh("echo fine").stdout == b"fine\n"


def test_the_number_of_processes_is_bounded(small: Box) -> None:
    script = """
import os, time
made = 0
try:
    for _ in range(200):
        if os.fork() == 0:
            time.sleep(1000)
        made += 1
except OSError:
    pass
print(made)
"""
    done = small.exec("python", "-c", script)
    assert 10 < int(done.stdout) < SMALL.processes


def test_a_fork_bomb_ends_and_the_next_command_works(small: Box) -> None:
    marker = f"marker-{secrets.token_hex(8)}"
    began = time.monotonic()
    small.exec("sh", "-c", "f() { f | f & }; f; sleep 1000", marker, timeout_s=1)
    assert time.monotonic() - began < 10
    assert processes_with(marker) == []
    assert small.sh("echo fine").stdout == b"fine\n"


def test_a_memory_bomb_is_out_of_memory_and_the_next_command_works(small: Box) -> None:
    done = small.exec("python", "-c", "x = [b'x' * 1_000_000 for _ in range(10_000)]", timeout_s=30)
    if done.limits_by == "rlimit":
        assert b"MemoryError" in done.stderr
    else:
        assert done.ending is Ending.OUT_OF_MEMORY
    assert small.sh("echo fine").stdout == b"fine\n"


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
def test_memory_backed_folders_are_bounded(small: Box, folder: str) -> None:
    script = f"import os; s = os.statvfs('{folder}'); print(s.f_blocks * s.f_frsize)"
    assert int(small.exec("python", "-c", script).stdout) <= SMALL.memory_bytes


def test_a_file_is_bounded(small: Box) -> None:
    assert small.sh("head -c 2000000 /dev/zero > big").exit_code != 0
    assert len(small.read("big")) <= SMALL.file_bytes


def test_no_core_is_dumped(small: Box) -> None:
    assert small.sh("kill -SEGV $$").signal == 11
    assert small.out("ulimit -c; ls").split()[0] == "0"


def test_a_flood_of_output_is_cut_in_the_middle_and_counted(small: Box) -> None:
    done = small.exec("sh", "-c", "echo first; yes | head -c 50000000; echo last")
    assert done.stdout_size == len("first\n") + 50_000_000 + len("last\n")
    assert len(done.stdout) == SMALL.stream_bytes
    assert done.stdout.startswith(b"first\ny\n")
    assert done.stdout.endswith(b"y\nlast\n")


def test_an_endless_flood_is_ended(boxes: Boxes, tree: str) -> None:
    limits = ResourceLimits(stream_bytes=1000, output_bytes=3_000_000)
    done = boxes.open(tree, limits=limits).exec("sh", "-c", "yes >&2", timeout_s=60)
    assert done.ending is Ending.OUTPUT_CUT
    assert len(done.stderr) == 1000
    assert 3_000_000 < done.stderr_size < 4_000_000


@pytest.mark.parametrize("lines", [300, 100_000])
def test_what_was_cut_is_whole_in_the_store(small: Box, boxes: Boxes, lines: int) -> None:
    whole = "".join(f"{number}\n" for number in range(1, lines + 1)).encode()
    done = small.exec("seq", str(lines))
    assert done.stdout_cut is not None
    assert boxes.store.get(done.stdout_cut.blob) == whole
    assert done.stdout_cut.sha256 == hashlib.sha256(whole).hexdigest()
    head, tail = done.stdout_cut.head, done.stdout_cut.tail
    assert done.stdout == whole[:head] + whole[-tail:]
    assert done.stderr_cut is None


def test_cpu_time_is_bounded(boxes: Boxes, tree: str) -> None:
    done = boxes.open(tree, limits=ResourceLimits(cpu_seconds=1)).sh("while :; do :; done", timeout_s=60)
    assert (done.ending, done.signal) == (Ending.SIGNALLED, signal.SIGKILL)


def test_a_disk_bomb_of_many_files_is_ended_and_the_next_command_works(boxes: Boxes, tree: str) -> None:
    box = boxes.open(tree, limits=ResourceLimits(disk_bytes=20_000_000))
    if is_memory(box.sandbox._overlay.upper) and box.exec("true").limits_by != "rlimit":
        pytest.skip("NOT RUN: files are memory here, and the limit of memory holds them")
    began = time.monotonic()
    done = box.sh("i=0; while :; do i=$((i+1)); head -c 1000000 /dev/zero > f$i; done", timeout_s=60)
    assert done.ending is Ending.DISK_FULL
    assert time.monotonic() - began < 30
    assert box.sh("echo fine").stdout == b"fine\n"


def test_output_within_the_limit_is_whole(small: Box) -> None:
    text = bytes(range(250)) * 4
    assert small.exec("cat", stdin=text).stdout == text
    assert small.exec("cat", stdin=text).stdout_cut is None
    assert small.exec("cat", stdin=text + b"!").stdout == text[:500] + text[501:] + b"!"


def test_sandboxes_run_side_by_side(boxes: Boxes, tree: str) -> None:
    opened = [boxes.open(tree) for _ in range(6)]

    async def all_at_once() -> list[bytes]:
        commands = (box.sandbox.exec(["sh", "-c", f"sleep 0.5; echo {i}"]) for i, box in enumerate(opened))
        return [done.stdout for done in await asyncio.gather(*commands)]

    began = time.monotonic()
    assert boxes.runner.run(all_at_once()) == [f"{i}\n".encode() for i in range(6)]
    assert time.monotonic() - began < 2.5


def test_commands_of_one_sandbox_run_one_at_a_time(box: Box) -> None:
    async def twice() -> None:
        script = "test -e busy && exit 1; touch busy; sleep 0.1; rm busy"
        done = await asyncio.gather(*(box.sandbox.exec(["sh", "-c", script]) for _ in range(3)))
        assert [one.exit_code for one in done] == [0, 0, 0]

    box.wait(twice())
