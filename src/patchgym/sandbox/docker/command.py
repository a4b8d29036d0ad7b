"""One command in a container: the streams that the engine carries, and a channel beside them for a report."""

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from patchgym.sandbox.capture import Capture
from patchgym.sandbox.docker.engine import Attached
from patchgym.sandbox.protocol import Ending, ResourceLimits
from patchgym.sandbox.step import CHANNEL, Step

_CHUNK = 1 << 16
_HEAD = 8
_STDERR = 2
_NOT_STARTED = 127
_FATAL = 128
# Opens the channel, says so, and becomes the command: nobody inside stands between the command and the engine.
_REPORTING = 'command -v -- "$1" >/dev/null || exit 127; exec 3>"$0" && printf . >&3 && exec "$@"'


class Channel:
    """A named pipe in ``folder``, for one report. Its name goes away once the command holds it."""

    variables: ClassVar[Mapping[str, str]] = {CHANNEL: "3"}

    def __init__(self, folder: Path, inside: str) -> None:
        """``inside`` is where ``folder`` lies inside.

        Raises:
            OSError: it cannot be made.
        """
        self._path = folder / "report"
        self._place = f"{inside}/{self._path.name}"
        os.mkfifo(self._path, 0o600)
        self.reading = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self.held = False

    def wrap(self, argv: Sequence[str]) -> list[str]:
        """A command line that runs ``argv`` with the channel open."""
        return ["/bin/sh", "-c", _REPORTING, self._place, *argv]

    def forget(self) -> None:
        """Take its name away; the command holds it, or never will."""
        self._path.unlink(missing_ok=True)


class DockerStep(Step):
    """One command. ``quiet`` is set when its streams came to their
    end, ``unwanted`` when it is to be ended."""

    def __init__(self, limits: ResourceLimits, folder: Path, channel: Channel | None) -> None:
        super().__init__(limits, folder)
        self.quiet, self.unwanted = asyncio.Event(), asyncio.Event()
        self._fresh = Capture(limits.stream_bytes, limits.output_bytes, folder, self._drown)
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._buffer = bytearray()
        self._connection: socket.socket | None = None

    def listen(self, attached: Attached, stdin: bytes) -> None:
        """Begin to pump the streams of the command, which was just started."""
        self._connection = attached.connection
        self._connection.setblocking(False)
        self._take(attached.first)
        self._loop.add_reader(self._connection, self._readable)
        self._feed(memoryview(stdin))
        if self._channel is not None:
            self._loop.add_reader(self._channel.reading, self._reported)

    def kill(self, why: Ending | None = None) -> None:
        """Have it ended; see ``Step.kill``."""
        self.ended_by = self.ended_by or why
        self.unwanted.set()

    def close(self) -> None:
        """Let go of the streams. May be called twice."""
        if self._connection is not None:
            self._readable()
            self._loop.remove_reader(self._connection)
            self._loop.remove_writer(self._connection)
            self._connection.close()
            self._connection = None
        if self._channel is not None:
            self._reported()
            self._loop.remove_reader(self._channel.reading)
            os.close(self._channel.reading)
            self._channel.forget()
            self._channel = None

    def settle(self, code: int, *, begun: bool) -> None:
        """Say how it ended, by the exit code that the engine tells. One of 128 and more stands for a signal: that is
        all that the engine says of it."""
        unheld = self._channel is not None and not self._channel.held
        if not begun or (unheld and code == _NOT_STARTED):
            self.not_run = self.stdout.kept.decode(errors="replace").strip() or "There is no such program."
            self.stdout = self._fresh
        elif _FATAL < code < _FATAL + 65:
            self.signal = code - _FATAL
        else:
            self.exit_code = code

    def _drown(self) -> None:
        self.kill(Ending.OUTPUT_CUT)
        if self._connection is not None:  # the rest waits in the engine
            self._loop.remove_reader(self._connection)
        self.quiet.set()

    def _readable(self) -> None:
        assert self._connection is not None
        try:
            data = self._connection.recv(_CHUNK)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if data:
            self._take(data)
        else:
            self._loop.remove_reader(self._connection)
            self.quiet.set()

    def _take(self, data: bytes) -> None:
        """Sort what came into the two streams; each piece has a head that says whose it is and how long."""
        self._buffer += data
        while len(self._buffer) >= _HEAD:
            size = int.from_bytes(self._buffer[4:_HEAD])
            if len(self._buffer) < _HEAD + size:
                return
            stream = self.stderr if self._buffer[0] == _STDERR else self.stdout
            stream.add(bytes(self._buffer[_HEAD : _HEAD + size]))
            del self._buffer[: _HEAD + size]

    def _reported(self) -> None:
        assert self._channel is not None
        with suppress(BlockingIOError):
            while data := os.read(self._channel.reading, _CHUNK):
                if not self._channel.held:
                    self._channel.held = True
                    self._channel.forget()
                    data = data[1:]
                self._take_report(data)
            if self._channel.held:
                self._loop.remove_reader(self._channel.reading)

    def _feed(self, data: memoryview) -> None:
        assert self._connection is not None
        if data:
            self._loop.add_writer(self._connection, self._writable, data)
        else:
            self._loop.remove_writer(self._connection)
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_WR)

    def _writable(self, data: memoryview) -> None:
        assert self._connection is not None
        try:
            written = self._connection.send(data[:_CHUNK])
        except BlockingIOError:
            written = 0
        except ConnectionError:
            written = len(data)
        self._feed(data[written:])
