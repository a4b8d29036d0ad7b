"""Runs one command in a living sandbox: pumps its streams, ends all of it at once."""

import asyncio
import json
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

from patchgym.errors import SandboxError
from patchgym.sandbox.limits import Limiter
from patchgym.sandbox.living import Living
from patchgym.sandbox.protocol import Ending, ResourceLimits
from patchgym.sandbox.step import CHANNEL, Step

_CHUNK = 1 << 16
_PIPEFULS = 16
_LONG = 1 << 15  # from here on a request goes in a file: a message has a limit
_END, _IN_A_FILE = b"k", b"@"
_T = TypeVar("_T")

Process = tuple[int, int]
"""A process inside a sandbox: its id there, and when it started (clock ticks since the machine did)."""


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


class NeverBegun(SandboxError):
    """What starts commands was gone before it began with this one."""


class Command(Step):
    """One command, from its start until it and all that it started are gone, or may go on. ``kept`` are the processes
    that may go on."""

    def __init__(self, limits: ResourceLimits, folder: Path) -> None:
        super().__init__(limits, folder)
        self.kept: tuple[Process, ...] = ()
        self._said: dict[str, Any] = {}
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._open: dict[int, Callable[[bytes], None]] = {}
        self._commands: socket.socket | None = None
        self._input = -1

    def start(
        self, living: Living, request: Mapping[str, object], limiter: Limiter, *, stdin: bytes, report: bool
    ) -> None:
        """Have the command started in the namespaces of ``living`` and in the control groups of ``limiter``.

        Raises:
            SandboxError: it could not be.
        """
        assert living.commands is not None
        with ExitStack() as ours, ExitStack() as theirs:
            given, self._input = self._pipe(theirs, ours)
            outputs = [self._pipe(ours, theirs) for _ in range(3 if report else 2)]
            streams = [given, *(writing for _, writing in outputs)]
            counts = {"streams": len(streams), "members": len(limiter.members), "channel": CHANNEL}
            passed = [*streams, *limiter.members, *limiter.descriptors]
            self._began = time.monotonic()
            _ask(living.commands, json.dumps({**request, **counts}).encode(), passed)
            ours.pop_all()
        for (reading, _), take in zip(
            outputs, (self.stdout.add, self.stderr.add, self._take_report)[: len(outputs)], strict=True
        ):
            self._read(reading, take)
        self._commands = living.commands
        self._loop.add_reader(self._commands, self._hear)
        self._feed(memoryview(stdin))

    async def wait(self, timeout_s: float) -> None:
        """Wait for the end. When time runs out, or the caller is cancelled, all of it is killed first.

        Raises:
            SandboxError: the sandbox was lost, or the limits could not be set.
        """
        try:
            await asyncio.wait([self._done], timeout=timeout_s)
        finally:
            if not self._done.done():
                self.kill(Ending.TIMED_OUT)
                await settled(self._done)
        self._settle()

    def kill(self, why: Ending | None = None) -> None:
        """End everything at once. ``wait`` returns when it is gone."""
        self.ended_by = self.ended_by or why
        if self._commands is not None:
            with suppress(OSError):  # it is gone, and the end comes by itself
                self._commands.send(_END)

    def _drown(self) -> None:
        self.kill(Ending.OUTPUT_CUT)
        for descriptor in self._open:  # the rest waits in the pipe, and who writes to it as well
            self._loop.remove_reader(descriptor)

    def _hear(self) -> None:
        """Take in what is said of the command; the last word is its end, and so is silence."""
        assert self._commands is not None
        try:
            message = self._commands.recv(_CHUNK)
        except BlockingIOError:
            return
        except ConnectionError:
            message = b""
        told = json.loads(message) if message else {}
        self._said |= told
        if not message or told.keys() & {"exit", "signal", "refused"}:
            self._loop.remove_reader(self._commands)
            self._commands = None
            self._end()

    def _settle(self) -> None:
        said = self._said
        self.exit_code, self.signal, self.not_run = said.get("exit"), said.get("signal"), said.get("not_run")
        self.kept = tuple((process, started) for process, started in said.get("kept", ()))
        if not said:
            raise NeverBegun("The sandbox was lost", why="What starts its commands was killed.")
        if "refused" in said or (self.exit_code is None and self.signal is None):
            raise SandboxError("The sandbox was lost", why=said.get("refused", "What starts its commands was killed."))

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
        self._open[descriptor] = take
        self._loop.add_reader(descriptor, self._readable, descriptor)

    def _readable(self, descriptor: int) -> bool:
        """Take in what there is; whether there may be more at once."""
        with suppress(BlockingIOError):
            data = os.read(descriptor, _CHUNK)
            if data:
                self._open[descriptor](data)
                return True
            self._close(descriptor)
        return False

    def _close(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        del self._open[descriptor]

    def _end(self) -> None:
        """All that the command wrote is in the pipes by now. Who still holds them may go on; nobody waits for that."""
        for descriptor in list(self._open):
            for _ in range(_PIPEFULS):
                if not self._readable(descriptor):
                    break
            if descriptor in self._open:
                self._close(descriptor)
        self.seconds = time.monotonic() - self._began
        self._shut_input()
        self._done.set_result(None)

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


def _ask(commands: socket.socket, request: bytes, descriptors: Sequence[int]) -> None:
    """Send a request to what starts commands.

    Raises:
        NeverBegun: it is gone.
        SandboxError: it could not be asked.
    """
    try:
        if len(request) < _LONG:
            socket.send_fds(commands, [request], descriptors)
            return
        given = os.memfd_create("request", os.MFD_CLOEXEC)
        with open(given, "rb+", buffering=0) as file:
            file.write(request)
            file.seek(0)
            socket.send_fds(commands, [_IN_A_FILE], [given, *descriptors])
    except (BrokenPipeError, ConnectionResetError) as error:
        raise NeverBegun("The sandbox was lost", why="What starts its commands was killed.") from error
    except OSError as error:
        raise SandboxError("Cannot start a command", why=str(error), mend="Raise ulimit -n.") from error
