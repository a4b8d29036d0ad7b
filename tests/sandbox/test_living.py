"""What lives between commands: the namespaces, processes that are kept, and forks."""

import os
import secrets
import select
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from patchgym.errors import SandboxError
from patchgym.sandbox import NamespaceSandbox, NamespaceSandboxes, SandboxSpec
from patchgym.sandbox.docker import DockerSandbox
from tests.sandbox.box import Box, Boxes, Counting, processes_with


def test_a_kept_process_goes_on_and_is_gone_at_the_end(box: Box) -> None:
    marker = f"marker-{secrets.token_hex(8)}"
    box.exec("sh", "-c", f"sh -c 'sleep 1000; :' {marker} &", keep=True)
    other = f"marker-{secrets.token_hex(8)}"
    box.exec("sh", "-c", f"setsid sh -c 'sleep 1000; :' {other} &")
    assert len(processes_with(marker)) == 1
    assert processes_with(other) == []
    assert box.sh("sleep 1000", timeout_s=0.1).timed_out
    assert len(processes_with(marker)) == 1
    box.close()
    assert processes_with(marker) == []


def test_a_kept_server_answers_and_may_start_others(box: Box) -> None:
    # Who opens the pipe before the last writer has closed it reads its end, and must ask again.
    serve = "mkfifo /tmp/q; (while :; do read line < /tmp/q && sh -c 'echo served >> log'; done) &"
    box.exec("sh", "-c", serve, keep=True)
    for _ in range(3):
        assert box.sh("echo go > /tmp/q; sleep 0.1").exit_code == 0
    assert box.read("log") == b"served\n" * 3


def test_a_kept_process_that_holds_a_stream_does_not_hold_the_command(box: Box) -> None:
    done = box.exec("sh", "-c", "echo started; sleep 1000 &", keep=True, timeout_s=20)
    assert done.stdout == b"started\n"
    assert done.seconds < 10


def test_a_kept_process_that_floods_does_not_hold_the_command(box: Box) -> None:
    assert box.exec("sh", "-c", "yes & sleep 0.1", keep=True, timeout_s=20).seconds < 10
    assert box.sh("echo fine").stdout == b"fine\n"


def test_a_command_that_runs_out_of_time_leaves_nothing_though_it_may(box: Box) -> None:
    marker = f"marker-{secrets.token_hex(8)}"
    assert box.exec("sh", "-c", f"sh -c 'sleep 1000; :' {marker} & sleep 1000", keep=True, timeout_s=0.3).timed_out
    assert processes_with(marker) == []


def test_a_fork_leaves_kept_processes_in_peace(box: Box) -> None:
    box.exec(
        "sh",
        "-c",
        "(while :; do date +%N > ticks; sleep 0.01; done) & echo x > before; until test -s ticks; do sleep 0.01; done",
        keep=True,
    )
    twin = box.fork()
    assert twin.read("before") == b"x\n"
    still = twin.read("ticks")
    first = box.read("ticks")
    box.sh("sleep 0.2")
    assert box.read("ticks") != first
    assert twin.read("ticks") == still


@pytest.mark.parametrize("number", ["KILL", "STOP", "TERM", "SEGV"])
def test_the_first_process_takes_no_signal_from_inside(box: Box, number: str) -> None:
    box.sh(f"kill -{number} 1; kill -{number} -1")
    assert box.sh("echo fine").stdout == b"fine\n"


@pytest.mark.parametrize(
    "script",
    [
        "cat /proc/1/maps",
        "cat /proc/1/environ",
        "echo > /proc/1/mem",
        "cat /proc/1/fd/0",
        "readlink /proc/1/exe",
        "ls /proc/1/root/",
        "ls /proc/1/cwd/",
        "cat /etc/first/cat",
        "chmod 755 /etc/first/cat",
    ],
)
def test_the_first_process_can_be_neither_read_nor_written(box: Box, script: str) -> None:
    assert box.sh(script).exit_code != 0


def test_what_is_written_from_outside_shows_though_it_was_missed_before(box: Box) -> None:
    assert box.sh("test -e late || test -e folder/late").exit_code == 1
    box.write("late", b"1")
    box.write("folder/late", b"2")
    assert box.out("cat late folder/late") == "12"
    box.write("late", b"3")
    assert box.out("cat late") == "3"
    box.sh("rm late")
    with pytest.raises(FileNotFoundError):
        box.read("late")


def first_of(box: Box) -> int:
    """A descriptor of the first process inside."""
    sandbox = box.sandbox
    assert isinstance(sandbox, NamespaceSandbox | DockerSandbox)
    alive = sandbox._living if isinstance(sandbox, NamespaceSandbox) else sandbox._container
    assert alive is not None
    return alive._first


def spawner_of(box: Box) -> int:
    assert isinstance(box.sandbox, NamespaceSandbox)
    process = box.sandbox.machine.spawner._process
    assert process is not None
    return process.pid


@pytest.mark.parametrize("factory", ["namespace"], indirect=True)
def test_what_starts_commands_is_replaced_when_it_is_killed(box: Box) -> None:
    box.out("echo x > kept")
    assert isinstance(box.sandbox, NamespaceSandbox)
    assert box.sandbox._living is not None
    commands = box.sandbox._living.commands
    assert commands is not None
    os.kill(spawner_of(box), signal.SIGKILL)
    assert select.select([commands], [], [], 10)[0], "what starts commands in this sandbox outlived what started it"
    assert box.out("cat kept") == "x\n"


@pytest.mark.parametrize("factory", ["namespace"], indirect=True)
def test_a_command_whose_starter_is_killed_is_lost_and_dead(box: Box) -> None:
    marker = f"marker-{secrets.token_hex(8)}"
    box.exec("true")
    killing = subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -9 {spawner_of(box)}"])
    with killing, pytest.raises(SandboxError, match="lost"):
        box.exec("sh", "-c", "sleep 1000; :", marker)
    assert processes_with(marker) == []
    assert box.sh("echo fine").stdout == b"fine\n"


def test_a_sandbox_whose_namespaces_are_killed_from_outside_says_so(box: Box) -> None:
    for wait in (0.0, 0.01, 0.05, 0.5):  # an engine notices late, and says so in its own words
        box.exec("true")
        signal.pidfd_send_signal(first_of(box), signal.SIGKILL)
        time.sleep(wait)
        with pytest.raises(SandboxError, match="lost"):
            box.exec("true")
    assert box.sh("echo fine").stdout == b"fine\n"


def test_a_command_whose_namespaces_are_killed_meanwhile_is_no_failure_of_its_own(box: Box) -> None:
    box.exec("true")
    threading.Timer(0.3, signal.pidfd_send_signal, [first_of(box), signal.SIGKILL]).start()
    with pytest.raises(SandboxError, match="lost"):
        box.exec("sleep", "1000", timeout_s=30)


EDITS = (
    "echo $N >> log",
    "mkdir -p d/e; echo $N > d/e/f; ln -sf f d/e/l",
    "rm -r d; echo $N > d",
    "rm d; mkdir d; echo $N > d/new",
    "rm -r package; mkdir package; echo $N > package/only",
    "rm README.md; mkdir README.md; echo $N > README.md/inside",
    "mv package moved$N; chmod 755 moved$N/only",
    "rm -rf README.md moved*; printf '\\0\\377' > bin$N",
)


def test_a_long_chain_of_forks_shows_what_one_sandbox_would(boxes: Boxes, tree: str) -> None:
    plain, forked = boxes.open(tree), boxes.open(tree)
    for number in range(5):
        for edit in EDITS:
            if number and ("package" in edit or "README.md;" in edit):
                continue
            for box in (plain, forked):
                box.out(f"N={number}; {edit}")
            twin = forked.fork()
            left, forked = forked, twin
            left.out("echo other > mine; rm -f log")
            assert twin.snapshot() == plain.snapshot()
            left.close()
    listing = "find . | sort; find . -type f | sort | xargs sha1sum"
    assert forked.out(listing) == plain.out(listing)
    assert forked.diff() == plain.diff()
    assert len(forked.sandbox._overlay.lowers) < 30


def test_twins_go_their_own_ways_whoever_ends_first(box: Box) -> None:
    box.out("echo 1 > a")
    twin = box.fork()
    third = twin.fork()
    box.out("echo 2 > a")
    twin.out("rm a")
    box.close()
    assert third.out("cat a") == "1\n"
    assert twin.sh("cat a").exit_code == 1
    twin.close()
    assert third.out("cat a") == "1\n"


def test_nothing_is_left_of_a_tree_of_forks(boxes: Boxes, tree: str, tmp_path: Path) -> None:
    factory = NamespaceSandboxes(boxes.store, cache=boxes.factory._cache, scratch=tmp_path / "scratch")

    async def grow() -> None:
        made = [await factory.create(SandboxSpec(tree=tree))]
        for number in range(8):
            await made[number // 2].exec(["sh", "-c", f"echo {number} > f{number}"])
            made.append(await made[number // 2].fork())
        for sandbox in made:
            await sandbox.close()

    boxes.runner.run(grow())
    (folder,) = (tmp_path / "scratch").iterdir()
    assert sorted(os.listdir(folder)) == ["etc", "groups"]
    factory.close()


def test_a_snapshot_after_a_fork_reads_only_what_changed_since(boxes: Boxes, tmp_path: Path) -> None:
    store = Counting(tmp_path / "objects")
    factory = NamespaceSandboxes(store, cache=tmp_path / "cache", scratch=tmp_path / "scratch")

    async def run() -> None:
        sandbox = await factory.create(SandboxSpec(tree=store.write_tree({})))
        await sandbox.exec(["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do echo $i > f$i; done"])
        await sandbox.snapshot()
        twin = await sandbox.fork()
        before = len(store.read)
        await twin.exec(["sh", "-c", "echo x > f3"])
        await twin.snapshot()
        await twin.snapshot()
        assert len(store.read) - before <= 9 + 2
        before = len(store.read)
        await twin.exec(["sh", "-c", "echo y > f4"])
        await twin.snapshot()
        assert len(store.read) - before <= 2
        await twin.close()
        await sandbox.close()

    boxes.runner.run(run())
    factory.close()
