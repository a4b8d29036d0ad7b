"""One container, alive between its commands, and the commands that the engine starts in it."""

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from patchgym.errors import SandboxError
from patchgym.sandbox.docker.engine import Attached, Engine
from patchgym.sandbox.limits import group_of, oom_kills
from patchgym.sandbox.living import has_ended
from patchgym.sandbox.protocol import WORKSPACE

# Ignoring SIGCHLD lets the kernel clear away every orphan; the end of its input never comes.
WAITS = ["/bin/sh", "-c", "trap '' CHLD; exec cat"]
"""The first process of a container."""
WAITS_UNREAD = ["/usr/bin/env", "--ignore-signal=CHLD", "/etc/first/cat"]
"""The same, by our own ``/etc`` and for root: nothing inside can read or trace it."""
Kept = tuple[int, int]
"""A process that may go on: its id on this machine, and when it started (clock ticks since the machine did)."""


class Container:
    """A running container. ``root`` is the workspace as it is mounted there, ``pid`` its first process.

    What runs in it is told by its control group, which only the kernel writes."""

    def __init__(self, engine: Engine, name: str, options: Mapping[str, Any]) -> None:
        """Make and start it. Blocking.

        Raises:
            SandboxError: the engine refused; nothing is left then.
        """
        self._engine = engine
        with ExitStack() as undo:
            self.id: str = engine.call("POST", "/containers/create", options, name=name)["Id"]
            undo.callback(self._remove)
            engine.call("POST", f"/containers/{self.id}/start")
            self.pid: int = engine.call("GET", f"/containers/{self.id}/json")["State"]["Pid"]
            try:
                self._first = os.pidfd_open(self.pid)
                undo.callback(os.close, self._first)
                self.root = os.open(f"/proc/{self.pid}/root{WORKSPACE}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                undo.callback(os.close, self.root)
            except (OSError, OverflowError, ValueError) as error:
                raise SandboxError(
                    "A container's first process is out of reach",
                    why=str(error),
                    mend="Run patchgym on the engine's machine, as the user that containers run as or as root.",
                ) from error
            groups = group_of(Path("/proc", str(self.pid)))
            if groups is None:
                raise SandboxError(
                    "A container's control group is not to be seen",
                    mend="Run patchgym where /sys/fs/cgroup shows the groups of the engine.",
                )
            self.limits_by, self._group = groups.kind, groups.parents[0]
            undo.pop_all()

    @property
    def lost(self) -> bool:
        """Whether its first process was ended, and with it everything inside."""
        return has_ended(self._first, self.pid)

    @property
    def oom_kills(self) -> int:
        """How many processes its memory limit has killed."""
        return oom_kills(self._group)

    def begin(self, argv: Sequence[str], cwd: str, variables: Mapping[str, str]) -> tuple[str, Attached]:
        """Have a command started: its id, and its streams. Blocking.

        Raises:
            SandboxError: the engine refused.
        """
        command = {
            "Cmd": list(argv),
            "Env": [f"{name}={value}" for name, value in variables.items()],
            "WorkingDir": cwd,
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
        }
        started: str = self._engine.call("POST", f"/containers/{self.id}/exec", command)["Id"]
        return started, self._engine.attach(f"/exec/{started}/start")

    def state(self, command: str) -> tuple[int | None, bool]:
        """The exit code of a command, None until it has ended, and whether it was ever started. Blocking.

        Raises:
            SandboxError: the engine does not know it any more.
        """
        state = self._engine.call("GET", f"/exec/{command}/json")
        return (None if state["Running"] else state["ExitCode"]), bool(state["Pid"])

    def living(self) -> list[Kept]:
        """Every process in it but the first."""
        found = []
        with suppress(OSError):
            for line in (self._group / "cgroup.procs").read_text().split():
                started = _started(int(line))
                if int(line) != self.pid and started is not None:
                    found.append((int(line), started))
        return found

    def end_others(self, kept: Sequence[Kept]) -> int:
        """Kill what is neither kept nor descends from what is; how many processes that were."""
        living = self.living()
        spared = {pid for pid, started in living if (pid, started) in kept}
        parents = {pid: _parent(pid) for pid, _ in living}
        while more := {pid for pid, parent in parents.items() if parent in spared and pid not in spared}:
            spared |= more
        strangers = [(pid, started) for pid, started in living if pid not in spared]
        for pid, started in strangers:
            with suppress(ProcessLookupError, PermissionError):
                process = os.pidfd_open(pid)
                try:
                    if _started(pid) == started:  # still the one that was listed
                        signal.pidfd_send_signal(process, signal.SIGKILL)
                finally:
                    os.close(process)
        return len(strangers)

    def stop(self) -> None:
        """End everything inside and remove it. Blocking."""
        os.close(self._first)
        os.close(self.root)
        self._remove()

    def _remove(self) -> None:
        self._engine.call("DELETE", f"/containers/{self.id}", absent=True, force="1", v="1")


def bind(source: Path, place: str) -> dict[str, Any]:
    """A file or folder of this machine, read-only, as the engine is told of it."""
    options = {"Propagation": "rprivate", "NonRecursive": True}
    return {"Type": "bind", "Source": str(source), "Target": place, "ReadOnly": True, "BindOptions": options}


def _stat(pid: int) -> list[bytes]:
    try:
        return Path("/proc", str(pid), "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def _started(pid: int) -> int | None:
    """When a process started; None for one that is gone or about to be cleared away."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in (b"Z", b"X") else None


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0
