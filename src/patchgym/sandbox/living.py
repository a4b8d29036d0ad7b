"""The namespaces of one sandbox, alive between its commands, and the process that starts commands in them."""

import asyncio
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from patchgym.errors import SandboxError
from patchgym.sandbox.bwrap import first_process, status_file
from patchgym.sandbox.protocol import WORKSPACE
from patchgym.sandbox.seccomp import seccomp_filter

_SPAWNER = Path(__file__).with_name("spawner.py")
_START_SECONDS = 30.0
_JOINED = ("mnt", "pid", "net", "ipc", "uts", "cgroup")
_EXITING = 0x4  # PF_EXITING of proc_pid_stat(5)
GET_USER_NAMESPACE = 0xB701  # NS_GET_USERNS of ioctl_ns(2)
_FIRST = ["env", "--ignore-signal=CHLD", "/etc/first/cat"]
"""The first process inside: it gives back the byte that we send it, and waits for the end of its input, which comes
with ours. Ignoring SIGCHLD lets the kernel clear away every orphan. As process 1 it cannot be killed from inside, and
its program, which nobody may read, makes the kernel keep its memory and descriptors from everybody in there."""


class Living:
    """One ``bwrap`` with the first process in its namespaces. ``root`` is the workspace as it is mounted there,
    ``commands`` a socket to what starts commands (``spawner.py``)."""

    def __init__(self, spawner: "Spawner", arguments: Sequence[str], network: Sequence[int] = ()) -> None:
        """Start ``bwrap``, whose program and options are ``arguments``; ``ready`` waits for it. ``network`` are the
        namespaces to join before its own, where it shares a network; they are not its to close.

        Raises:
            SandboxError: this process has no descriptors or processes left.
        """
        self.namespaces: tuple[int, ...] = ()
        self.root = -1
        self.commands: socket.socket | None = None
        self._spawner = spawner
        self._network = tuple(network)
        self._first = self._pid = -1
        self._stopped = False
        with ExitStack() as ours, ExitStack() as theirs:
            try:
                self._ready, ready = _pipe(ours, theirs)
                self._status = status_file()
                ours.callback(os.close, self._status)
                self._said, said = _pipe(ours, theirs)
                life, self._life = _pipe(theirs, ours)
                command = [*arguments, "--setenv", "PATH", "/usr/bin:/bin", "--as-pid-1"]
                command += ["--json-status-fd", str(self._status), "--", *_FIRST]
                self._process = subprocess.Popen(
                    command,
                    stdin=life,
                    stdout=ready,
                    stderr=said,
                    pass_fds=[self._status],
                    env={},
                    cwd="/",
                    start_new_session=True,
                )
            except OSError as error:
                raise SandboxError("Cannot start a sandbox", why=str(error), mend="Raise ulimit -n or -u.") from error
            os.write(self._life, b".")
            ours.pop_all()

    async def ready(self) -> str:
        """Wait until commands can be started. What ``bwrap`` said where they cannot; empty where they can."""
        if self.namespaces:
            return ""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()

        def arrived() -> None:
            if not waiting.done():
                waiting.set_result(None)

        loop.add_reader(self._ready, arrived)
        try:  # not wait_for, which in Python 3.11 loses a cancellation that comes together with the end
            await asyncio.wait([waiting], timeout=_START_SECONDS)
        finally:
            loop.remove_reader(self._ready)
        if not waiting.done():
            return f"bubblewrap did not start within {_START_SECONDS:.0f} seconds."
        if not os.read(self._ready, 1):
            self._process.wait()
            os.set_blocking(self._said, False)
            with suppress(BlockingIOError):
                return os.read(self._said, 4096).decode(errors="replace").strip() or "bubblewrap failed silently."
            return "bubblewrap failed silently."
        try:
            self._join(first_process(self._status))
        except OSError as error:
            return f"its namespaces cannot be joined: {error}"
        self.commands = self._spawner.keep([*self._network, *self.namespaces])
        return ""

    @property
    def lost(self) -> bool:
        """Whether the first process was ended from outside, and with it everything in the namespaces."""
        return has_ended(self._first, self._pid)

    def kill(self) -> None:
        """End everything inside; ``stop`` waits until it is gone."""
        if self._stopped:
            return
        if self._first >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
        else:
            self._process.kill()

    def stop(self) -> None:
        """End everything inside and wait until it is gone. Blocking; may be called twice."""
        if self._stopped:
            return
        self.kill()
        self._stopped = True
        if self.commands is not None:
            self.commands.close()
        opened = (*self.namespaces, self.root, self._first, self._life, self._ready, self._status, self._said)
        self.namespaces, self.root, self._first = (), -1, -1
        for descriptor in opened:
            if descriptor >= 0:
                os.close(descriptor)
        self._process.wait()

    def _join(self, pid: int) -> None:
        """Open the namespaces, in the order in which they are joined: the user namespace that owns them comes first,
        the one that commands end up in last."""
        with ExitStack() as opened:

            def keep(descriptor: int) -> int:
                opened.callback(os.close, descriptor)
                return descriptor

            own = [name for name in ("user", *_JOINED) if name != "net" or not self._network]
            user, *others = (keep(os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)) for name in own)
            owner = keep(fcntl.ioctl(others[0], GET_USER_NAMESPACE))
            os.set_inheritable(owner, False)
            first = keep(os.pidfd_open(pid))
            root = keep(os.open(f"/proc/{pid}/root{WORKSPACE}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            opened.pop_all()
        if os.path.samestat(os.fstat(owner), os.fstat(user)):  # joining the own user namespace is refused
            os.close(owner)
            self.namespaces = (user, *others)
        else:
            self.namespaces = (owner, *others, user)
        self.root, self._first, self._pid = root, first, pid


class Spawner:
    """The one process of this runner that forks what starts commands in sandboxes (``spawner.py``). One that died, and
    what it forked with it, is replaced."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def keep(self, namespaces: Sequence[int]) -> socket.socket:
        """A socket over which commands in these namespaces (descriptors, in the order in which they are joined) can be
        asked for. Its closing ends them.

        Raises:
            SandboxError: it could not be asked.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs, self._lock:
                given = [theirs.fileno(), *namespaces]
                try:
                    self._send(given)
                except (BrokenPipeError, ConnectionResetError):
                    self._end()
                    self._send(given)
        except OSError as error:
            ours.close()
            raise SandboxError("Cannot start commands", why=str(error)) from error
        ours.setblocking(False)
        return ours

    def close(self) -> None:
        """End it, and with it every command that it started. May be called twice."""
        with self._lock:
            self._end()

    def _send(self, descriptors: Sequence[int]) -> None:
        if self._socket is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                command = [_python(), "-I", "-S", str(_SPAWNER), str(theirs.fileno()), seccomp_filter().hex()]
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    env={},
                    cwd="/",
                    start_new_session=True,
                )
            self._socket = ours
        socket.send_fds(self._socket, [b"."], descriptors)

    def _end(self) -> None:
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait()
        self._socket = self._process = None


def has_ended(process: int, pid: int) -> bool:
    """Whether a process, by its descriptor and its id, is gone or about to be."""
    poll = select.poll()
    poll.register(process, select.POLLIN)
    if poll.poll(0):
        return True
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            flags = int(file.read().rpartition(b")")[2].split()[6])
    except OSError:
        return True
    return bool(flags & _EXITING)  # what ran beside it ends before it does


def _python() -> str:
    """This interpreter; where it is embedded, or out of this user's reach, the one that it belongs to."""
    return sys.executable if os.access(sys.executable, os.X_OK) else f"{sys.base_prefix}/bin/python3"


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    pair = os.pipe()
    reader.callback(os.close, pair[0])
    writer.callback(os.close, pair[1])
    return pair
