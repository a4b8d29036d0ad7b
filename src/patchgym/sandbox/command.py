"""Runs one bubblewrap process: pumps its streams, puts it under limits before it starts, ends all of it at once."""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TypeVar

from patchgym.errors import SandboxError

_CHUNK = 1 << 16
_START_SECONDS = 5.0
_T = TypeVar("_T")
REPORT_BYTES = 64 * 1024**2


async def settled(future: "asyncio.Future[_T]") -> _T:
    """Wait for ``future`` even when cancelled meanwhile; the cancellation is raised afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return future.result()


class Capture:
    """The first half and the last half of ``limit`` bytes of a stream, and the size of all of it."""

    def __init__(self, limit: int) -> None:
        self.size = 0
        self._first, self._last = bytearray(), bytearray()
        self._first_limit, self._last_limit = limit - limit // 2, limit // 2

    def add(self, data: bytes) -> None:
        """Take in what came."""
        self.size += len(data)
        room = self._first_limit - len(self._first)
        self._first += data[:room]
        self._last += data[room:]
        if len(self._last) > self._last_limit + _CHUNK:
            del self._last[: len(self._last) - self._last_limit]

    @property
    def kept(self) -> bytes:
        """What is kept of it."""
        return bytes(self._first + self._last[max(0, len(self._last) - self._last_limit) :])


class Command:
    """One run of ``bwrap``.

    ``bwrap`` reports the pid of the namespace's first process and waits for a byte before it goes on; in between,
    ``hold(pid)`` limits that process, so that nothing ever runs without limits. Killing it ends everything in its pid
    namespace, and it counts as ended only when all of that is gone: once ``wait`` returns, nothing is left.
    """

    def __init__(self, hold: Callable[[int], None], *, stream_bytes: int) -> None:
        self.stdout, self.stderr = Capture(stream_bytes), Capture(stream_bytes)
        self.exit_code: int | None = None
        self.seconds = 0.0
        self._report, self._status = bytearray(), bytearray()
        self._hold = hold
        self._fault: OSError | None = None
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._open: set[int] = set()
        self._first: int | None = None
        self._gate = self._input = -1
        self._killed = False

    @property
    def report(self) -> bytes:
        """What came through the report channel."""
        return bytes(self._report)

    def start(self, arguments: Sequence[str], argv: Sequence[str], *, stdin: bytes, report: bool) -> None:
        """Start ``bwrap``, whose program and options are ``arguments``, with the command ``argv`` inside.

        Raises:
            OSError, ValueError: the command line is too long or holds a NUL byte.
            SandboxError: this process has no descriptors or processes left.
        """
        with ExitStack() as ours, ExitStack() as theirs:
            reading, writing = self._pipe(ours, theirs), self._pipe(ours, theirs)
            status, (gate, self._gate) = self._pipe(ours, theirs), self._pipe(theirs, ours)
            channel = self._pipe(ours, theirs) if report else None
            given, self._input = self._pipe(theirs, ours)
            options = ["--json-status-fd", str(status[1]), "--block-fd", str(gate)]
            passed = [status[1], gate]
            if channel:
                options += ["--setenv", "PATCHGYM_REPORT_FD", str(channel[1])]
                passed.append(channel[1])
            self._began = time.monotonic()
            self._process = subprocess.Popen(
                [*arguments, *options, "--", *argv],
                stdin=given,
                stdout=reading[1],
                stderr=writing[1],
                pass_fds=passed,
                env={},
                cwd="/",
                start_new_session=True,
            )
            ours.pop_all()
        self._read(reading[0], self.stdout.add)
        self._read(writing[0], self.stderr.add)
        self._read(status[0], self._take_status)
        if channel:
            self._read(channel[0], self._take_report)
        self._feed(memoryview(stdin))

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the end; whether time ran out. When it does, or the caller is cancelled, all of it is killed first.

        Raises:
            SandboxError: the limits could not be set.
        """
        try:
            await asyncio.wait([self._done], timeout=timeout_s)
        finally:
            timed_out = not self._done.done()
            if timed_out:
                self.kill()
                await settled(self._done)
        if self._fault is not None:
            raise SandboxError("The limits of a sandbox could not be set", why=str(self._fault)) from self._fault
        return timed_out

    def kill(self) -> None:
        """End everything at once. ``wait`` returns when it is gone."""
        self._killed = True
        if self._first is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
        elif not self._done.done():
            # The first process is not known yet; it is killed as soon as it is, which is before it runs anything.
            self._loop.call_later(_START_SECONDS, self._process.kill)

    @staticmethod
    def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
        try:
            pair = os.pipe()
        except OSError as error:
            raise SandboxError("Cannot start a command", why=str(error), mend="Raise ulimit -n.") from error
        reader.callback(os.close, pair[0])
        writer.callback(os.close, pair[1])
        return pair

    def _read(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        os.set_blocking(descriptor, False)
        self._open.add(descriptor)
        self._loop.add_reader(descriptor, self._readable, descriptor, take)

    def _readable(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        with suppress(BlockingIOError):
            data = os.read(descriptor, _CHUNK)
            if data:
                take(data)
            else:
                self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        if descriptor == self._first:
            self._first = None
            with suppress(ChildProcessError):  # it is ours to reap only where we are the first process of a container
                os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOHANG)
        os.close(descriptor)
        self._open.discard(descriptor)
        if not self._open:
            self._end()

    def _end(self) -> None:
        self.seconds = time.monotonic() - self._began
        self._shut_input()
        self._open_gate()
        self._process.wait()
        for line in self._status.splitlines():
            self.exit_code = json.loads(line).get("exit-code", self.exit_code)
        self._done.set_result(None)

    def _take_report(self, data: bytes) -> None:
        self._report += data[: REPORT_BYTES - len(self._report)]

    def _take_status(self, data: bytes) -> None:
        self._status += data
        if self._gate >= 0 and b"\n" in self._status:
            self._begin(json.loads(self._status.splitlines()[0])["child-pid"])

    def _begin(self, pid: int) -> None:
        """Watch the namespace's first process, and limit it, or kill it, before it runs anything."""
        try:
            self._first = os.pidfd_open(pid)
            self._open.add(self._first)
            self._loop.add_reader(self._first, self._close, self._first)
            if not self._killed:
                self._hold(pid)
        except ProcessLookupError:
            pass  # it failed before it came this far; bubblewrap says why
        except OSError as error:
            self._fault = error
            self._killed = True
        if self._killed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._open_gate()

    def _open_gate(self) -> None:
        if self._gate >= 0:
            with suppress(BrokenPipeError):
                os.write(self._gate, b"1")
            os.close(self._gate)
            self._gate = -1

    def _feed(self, data: memoryview) -> None:
        if not data:
            self._shut_input()
            return
        os.set_blocking(self._input, False)
        self._loop.add_writer(self._input, self._writable, data)

    def _writable(self, data: memoryview) -> None:
        try:
            written = os.write(self._input, data[:_CHUNK])
        except BlockingIOError:
            written = 0
        except BrokenPipeError:
            written = len(data)
        self._feed(data[written:])

    def _shut_input(self) -> None:
        if self._input >= 0:
            self._loop.remove_writer(self._input)
            os.close(self._input)
            self._input = -1
