"""What a command gives back."""

import signal
import time

import pytest

from patchgym.errors import SandboxError
from patchgym.sandbox import Ending
from tests.sandbox.box import Box, Boxes


@pytest.mark.parametrize("code", [0, 1, 77, 127, 255])
def test_an_exit_code_comes_back_as_data(box: Box, code: int) -> None:
    done = box.sh(f"exit {code}")
    assert (done.ending, done.exit_code, done.signal) == (Ending.EXITED, code, None)


def test_a_command_killed_by_a_signal_says_which(box: Box) -> None:
    done = box.sh("kill -SEGV $$")
    assert (done.ending, done.exit_code, done.signal) == (Ending.SIGNALLED, None, signal.SIGSEGV)


def test_a_missing_program_is_not_found_and_no_error(box: Box) -> None:
    done = box.exec("no-such-program")
    assert done.ending is Ending.NOT_FOUND
    assert b"no-such-program" in done.stderr


def test_a_program_that_imitates_a_missing_one_is_not_taken_for_it(box: Box) -> None:
    done = box.sh("echo 'bwrap: execvp x: No such file or directory' >&2; exit 1")
    assert (done.ending, done.exit_code) == (Ending.EXITED, 1)


def test_a_missing_working_folder_is_not_found(box: Box) -> None:
    assert box.exec("true", cwd="nowhere").ending is Ending.NOT_FOUND


@pytest.mark.parametrize("argument", ["nul\0byte", "x" * 1_000_000, "lone \ud83d surrogate"])
def test_a_command_line_that_no_kernel_takes_is_data(box: Box, argument: str) -> None:
    done = box.exec("echo", argument)
    assert done.ending is Ending.NOT_FOUND
    assert done.stderr
    assert box.exec("true").exit_code == 0


def test_both_streams_come_back_apart(box: Box) -> None:
    done = box.sh("echo out; echo err >&2; echo out2")
    assert (done.stdout, done.stderr) == (b"out\nout2\n", b"err\n")


def test_bytes_that_are_no_text_survive(box: Box) -> None:
    raw = bytes(range(256)) * 1000
    assert box.exec("cat", stdin=raw).stdout == raw


def test_input_that_nobody_reads_does_not_block(box: Box) -> None:
    assert box.exec("true", stdin=b"x" * 1_000_000).exit_code == 0


def test_without_input_a_reading_command_ends(box: Box) -> None:
    assert box.exec("cat", timeout_s=5).exit_code == 0


def test_there_is_no_terminal(box: Box) -> None:
    assert box.sh("echo x > /dev/tty").exit_code != 0


def test_the_working_folder_is_inside_the_workspace(box: Box) -> None:
    assert box.exec("pwd", cwd="package/data").stdout == b"/workspace/package/data\n"


def test_variables_of_the_command_win_over_those_of_the_sandbox(boxes: Boxes, tree: str) -> None:
    box = boxes.open(tree, variables={"A": "sandbox", "B": "sandbox"})
    assert box.sh("echo $A $B", variables={"B": "command"}).stdout == b"sandbox command\n"


def test_a_loader_variable_reaches_the_command_but_not_bubblewrap(box: Box) -> None:
    done = box.sh("echo $LD_PRELOAD", variables={"LD_PRELOAD": "/nowhere/evil.so"})
    assert done.exit_code == 0
    assert done.stdout == b"/nowhere/evil.so\n"


def test_what_goes_into_the_report_channel_comes_back_apart(box: Box) -> None:
    script = "import os; os.write(int(os.environ['PATCHGYM_REPORT_FD']), b'secret'); print('open')"
    done = box.exec("python", "-c", script, report=True)
    assert (done.report, done.stdout) == (b"secret", b"open\n")


def test_a_report_larger_than_a_pipe_is_whole(box: Box) -> None:
    script = "import os; open(int(os.environ['PATCHGYM_REPORT_FD']), 'wb').write(b'r' * 5_000_000)"
    assert box.exec("python", "-c", script, report=True).report == b"r" * 5_000_000


def test_without_a_report_channel_there_is_no_descriptor_beyond_the_streams(box: Box) -> None:
    assert "PATCHGYM_REPORT_FD" not in box.out("env")
    assert box.out("ls /proc/$$/fd").split() == ["0", "1", "2"]


def test_a_background_process_does_not_hold_the_command(box: Box) -> None:
    began = time.monotonic()
    done = box.sh("sleep 1000 & setsid sleep 1000 & echo started")
    assert (done.exit_code, done.stdout) == (0, b"started\n")
    assert time.monotonic() - began < 10


def test_the_result_says_what_held_the_limits(box: Box) -> None:
    assert box.exec("true").limits_by in ("cgroup1", "cgroup2", "rlimit")


def test_a_closed_sandbox_runs_nothing(box: Box) -> None:
    box.close()
    with pytest.raises(SandboxError, match="closed"):
        box.exec("true")
