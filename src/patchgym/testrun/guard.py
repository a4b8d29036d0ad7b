"""Stands between the tests' process and the report channel. Runs inside a sandbox: only the standard library.

The guard is the process that the sandbox started; the tests run in a child of it, in a session of their own. The guard
alone holds the channel, and nobody beside it can: it cannot be traced, and its memory and descriptors cannot be read
by others of the same user. It lets the tests go on one by one: before each it draws a word, which the answer has to
quote, and the answer has to be of that test. A line that comes unasked, early, twice, late or with another word is
evidence. It also keeps the time, and says how the child ended and what CPU time all of it had.
"""

import contextlib
import json
import os
import select
import signal
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

LONGEST_LINE = 1 << 20
MOST_EVIDENCE = 20
QUOTED = 200
PATIENCE_S = 0.05
NOT_DUMPABLE, SUBREAPER = (4, 0), (36, 1)
WORD_BYTES = 8


class Link:
    """The child's two pipes to the guard: ``ask`` waits for the word of the next test, ``send`` answers."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading, self.writing = reading, writing
        self.word = ""
        self.begun = False
        self.answered = False

    def ask(self) -> None:
        """Wait until the guard lets the next test run."""
        self.answered = False
        taken = b""
        while not taken.endswith(b"\n"):
            taken += os.read(self.reading, 1) or sys.exit(1)
        self.word = taken.decode()[:-1]

    def send(self, record: Dict[str, Any]) -> None:
        """Write one line."""
        self.begun = self.begun or "collected" in record
        self.answered = self.answered or "id" in record or "collected" in record
        data = json.dumps(dict(record, word=self.word)).encode("utf-8", "backslashreplace") + b"\n"
        while data:
            data = data[os.write(self.writing, data) :]


def parted(channel: int, seconds: float) -> Link:
    """Go on as the child, with a link to the guard, which the process that was started becomes. The guard never
    returns from here."""
    from_child, to_guard = os.pipe()
    from_guard, to_child = os.pipe()
    child = os.fork()
    if child:
        os.close(to_guard)
        os.close(from_guard)
        Guard(channel, from_child, to_child, child, seconds).watch()
    for descriptor in (channel, from_child, to_child):
        os.close(descriptor)
    os.setsid()
    link = Link(from_guard, to_guard)
    link.ask()  # not before the guard is out of reach
    return link


class Guard:
    """What the parent does until the child is gone."""

    def __init__(self, channel: int, reading: int, writing: int, child: int, seconds: float) -> None:
        self.channel, self.reading, self.writing, self.child = channel, reading, writing, child
        self.began = time.monotonic()
        self.until = self.began + seconds
        self.tests: Optional[List[str]] = None
        self.at = 0
        self.word = ""
        self.done = False
        self.evidence = 0

    def watch(self) -> None:
        """Serve the child to its end, report it, and end as it did."""
        sealed = seal()
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
            signal.signal(number, signal.SIG_IGN)
        self.let_go()
        timed_out = not self.listen()
        cpu, waited = times_of(family(os.getpid())) if timed_out else (0.0, None)
        if timed_out:
            self.kill_all()
        status, used = self.reap()
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        ended = {
            "exit": code,
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            "timed_out": timed_out,
            "wall": round(time.monotonic() - self.began, 3),
            "cpu": round(max(cpu, used), 3),
            "waited": waited,
            "sealed": sealed,
        }
        self.tell(ended=ended)
        os._exit(code if code is not None else 1)

    def listen(self) -> bool:
        """Take in what the child says until it is gone; False where time ran out."""
        rest = b""
        gone = False
        while True:
            ready = select.select([self.reading], [], [], min(PATIENCE_S, max(0.0, self.until - time.monotonic())))[0]
            if ready:
                data = os.read(self.reading, 1 << 16)
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self.take(line)
                if len(rest) > LONGEST_LINE:
                    self.suspect(rest)
                    rest = b""
                if not data:
                    return self.closed()
            elif gone:  # something it started still holds the pipe
                return True
            elif time.monotonic() >= self.until:
                return False
            else:
                gone = self.is_gone()

    def closed(self) -> bool:
        """Wait for the end of a child that has nothing more to say."""
        while not self.is_gone():
            if time.monotonic() >= self.until:
                return False
            time.sleep(0.002)
        return True

    def is_gone(self) -> bool:
        """Whether the child has ended (it is not reaped yet)."""
        return os.waitid(os.P_PID, self.child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def take(self, raw: bytes) -> None:
        """One line of the child: pass it on where it is what must come now."""
        try:
            record = json.loads(raw)
        except ValueError:
            record = None
        if not isinstance(record, dict) or record.pop("word", None) != self.word or not self.fits(record):
            self.suspect(raw)

    def fits(self, record: Dict[str, Any]) -> bool:
        """Pass on what may come now; whether it may."""
        keys = set(record)
        if self.done:
            return False
        if self.tests is None:
            if keys == {"collected"}:
                self.tests = [str(test) for test in record["collected"]]
                self.let_go()
                return True
            if keys != {"collect", "outcome", "text"}:
                return False
        elif keys == {"id", "outcome", "text", "called"}:
            if self.at >= len(self.tests) or record["id"] != self.tests[self.at]:
                return False
            self.at += 1
            self.let_go()
        elif keys == {"done"}:
            self.done = True
        elif keys not in ({"noted"}, {"beside"}):
            return False
        self.tell(**record)
        return True

    def let_go(self) -> None:
        """Let the next test run."""
        self.word = os.urandom(WORD_BYTES).hex()
        with contextlib.suppress(OSError):  # it is gone, and the end comes by itself
            os.write(self.writing, self.word.encode() + b"\n")

    def suspect(self, raw: bytes) -> None:
        """Report a line that the runner does not write."""
        self.evidence += 1
        if self.evidence <= MOST_EVIDENCE:
            self.tell(forged=raw[:QUOTED].decode("utf-8", "backslashreplace"))

    def tell(self, **record: Any) -> None:
        """Write one line to the report channel."""
        data = json.dumps(record).encode("utf-8", "backslashreplace") + b"\n"
        while data:
            data = data[os.write(self.channel, data) :]

    def kill_all(self) -> None:
        """Kill the child and all that it started."""
        for process in family(os.getpid()):
            try:
                os.kill(process, signal.SIGKILL)
            except OSError:
                continue

    def reap(self) -> Tuple[int, float]:
        """The child's status, and the CPU seconds of it and of what it waited for."""
        _, status, used = os.wait4(self.child, 0)
        return status, used.ru_utime + used.ru_stime


def seal() -> bool:
    """Put this process out of reach of others of its user, and make orphans its children; whether both succeeded."""
    try:
        import ctypes

        library = ctypes.CDLL(None, use_errno=True)
        return all(library.prctl(number, value, 0, 0, 0) == 0 for number, value in (NOT_DUMPABLE, SUBREAPER))
    except (ImportError, OSError, AttributeError):
        return False


def family(process: int) -> List[int]:
    """Everything that descends from a process."""
    parents: Dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/" + name + "/stat", "rb") as file:
                    parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError):
                continue
    known = {process}
    while True:
        more = {one for one, parent in parents.items() if parent in known and one not in known}
        if not more:
            return sorted(known - {process})
        known |= more


def times_of(processes: List[int]) -> Tuple[float, Optional[float]]:
    """CPU seconds that processes used so far (with those they waited for), and the seconds that they were ready to run
    and did not get a CPU; None for these where the kernel does not tell."""
    ticks = os.sysconf("SC_CLK_TCK")
    used, waited, told = 0.0, 0.0, False
    for process in processes:
        try:
            with open("/proc/%d/stat" % process, "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            used += sum(int(field) for field in fields[11:15]) / ticks
            for thread in os.listdir("/proc/%d/task" % process):
                with open("/proc/%d/task/%s/schedstat" % (process, thread), "rb") as file:
                    waited += int(file.read().split()[1]) / 1e9
                    told = True
        except (OSError, IndexError, ValueError):
            continue
    return used, round(waited, 3) if told else None
