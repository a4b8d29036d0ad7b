"""What holds a command's limits: control groups where this process may make them, else rlimits."""

import os
import resource
import secrets
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from patchgym.sandbox.protocol import ResourceLimits

_OPEN_FILES = 4096
_CGROUP1 = ("memory", "pids")


@dataclass(frozen=True)
class Mechanism:
    """``kind`` is ``cgroup1``, ``cgroup2`` or ``rlimit``; ``parents`` are the groups that ours are made in."""

    kind: str
    parents: tuple[Path, ...] = ()


def find_mechanism(proc: Path = Path("/proc/self")) -> Mechanism:
    """The strongest mechanism that this process may use. Groups are made below our own, or below the nearest ancestor
    that may have children, so that limits set on us from outside hold for them too."""
    mine, mounts = _hierarchies(proc)
    if all(name in mounts and name in mine for name in _CGROUP1):
        parents = tuple(_folder(*mounts[name], mine[name]) for name in _CGROUP1)
        if all(_may_make(parent) for parent in parents):
            return Mechanism("cgroup1", parents)
    if "" in mounts and "" in mine:
        top = mounts[""][1]
        own = _folder(*mounts[""], mine[""])
        for parent in (own, *own.parents):
            if not parent.is_relative_to(top):
                break
            enabled = " ".join(_lines(parent / "cgroup.subtree_control")).split()
            if {"memory", "pids"} <= set(enabled) and _may_make(parent):
                return Mechanism("cgroup2", (parent,))
    return Mechanism("rlimit")


def group_of(proc: Path) -> Mechanism | None:
    """The control groups that another process (``proc`` is its folder in ``/proc``) is in, as this process sees them;
    None where it sees none."""
    mine, _ = _hierarchies(proc)
    _, mounts = _hierarchies(Path("/proc/self"))
    for kind, names in (("cgroup1", _CGROUP1), ("cgroup2", ("",))):
        if all(name in mounts and name in mine for name in names):
            groups = tuple(_folder(*mounts[name], mine[name]) for name in names)
            if all((group / "cgroup.procs").is_file() for group in groups):
                return Mechanism(kind, groups)
    return None


def _hierarchies(proc: Path) -> tuple[dict[str, str], dict[str, tuple[str, Path]]]:
    """The groups of a process, and where it sees the hierarchies mounted (their root, the place); each by the name of
    its controller, "" for version 2."""
    mine = {}
    for line in _lines(proc / "cgroup"):
        _, controllers, path = line.split(":", 2)
        mine.update(dict.fromkeys(controllers.split(","), path))
    mounts: dict[str, tuple[str, Path]] = {}
    for line in _lines(proc / "mountinfo"):
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        root, place = fields.split()[3:5]
        if kind == "cgroup":
            mounts.update({name: (root, Path(place)) for name in options.split(",") if name in _CGROUP1})
        elif kind == "cgroup2":
            mounts[""] = (root, Path(place))
    return mine, mounts


class Limiter:
    """The limits of one sandbox's commands. Making it makes its control groups; ``close`` removes them.
    ``descriptors`` are those of the files through which a process moves itself into them; ``members`` that of the file
    which lists who is in one of them (none with rlimits)."""

    def __init__(self, mechanism: Mechanism, name: str, limits: ResourceLimits) -> None:
        """``name`` is the groups' name.

        Raises:
            OSError: a control group could not be made or set up.
        """
        self.kind = mechanism.kind
        self.descriptors: list[int] = []
        self.members: list[int] = []
        self._limits = limits
        self._groups: list[Path] = []
        memory, processes = str(limits.memory_bytes), str(limits.processes)
        settings = {
            "memory.limit_in_bytes": memory,
            "memory.memsw.limit_in_bytes": memory,
            "memory.max": memory,
            "memory.swap.max": "0",
            "pids.max": processes,
        }
        try:
            for parent in mechanism.parents:
                group = parent / name
                group.mkdir()
                self._groups.append(group)
                for file, value in settings.items():
                    with suppress(FileNotFoundError):
                        _put(group / file, value)
                self.descriptors.append(os.open(group / self._entrance, os.O_WRONLY | os.O_CLOEXEC))
            if self._groups:
                self.members.append(os.open(self._groups[0] / "cgroup.procs", os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            self.close()
            raise

    @property
    def _entrance(self) -> str:
        """The file of a group that a process writes 0 to, to move itself there. Version 1 knows ``tasks``, by which a
        thread that moves itself alone moves at once; any other move waits for every core, for milliseconds."""
        return "tasks" if self.kind == "cgroup1" else "cgroup.procs"

    def bounds(self) -> list[tuple[int, int]]:
        """The rlimits that a command sets itself before it begins: what is limited, and the most of it."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        bounds = {
            resource.RLIMIT_CPU: self._limits.cpu_seconds,
            resource.RLIMIT_FSIZE: self._limits.file_bytes,
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_NOFILE: _OPEN_FILES if files == resource.RLIM_INFINITY else min(_OPEN_FILES, files),
        }
        if not self._groups:
            # Not RLIMIT_AS: programs reserve far more address space than they use. The process count holds within the
            # sandbox's own user namespace, not against everything else that this user runs.
            bounds |= {resource.RLIMIT_DATA: self._limits.memory_bytes, resource.RLIMIT_NPROC: self._limits.processes}
        return list(bounds.items())

    def oom_kills(self) -> int:
        """How many processes the memory limit has killed so far; always 0 with rlimits."""
        return oom_kills(self._groups[0]) if self._groups else 0

    def close(self) -> None:
        """Remove the control groups with whatever is left in them."""
        for opened in (self.descriptors, self.members):
            while opened:
                os.close(opened.pop())
        while self._groups:
            remove_group(self._groups.pop())


def remove_group(group: Path, patience_s: float = 2.0) -> None:
    """Kill what is in a control group and remove it. The kernel lets go of the last process a moment after its end,
    hence the patience."""
    until = time.monotonic() + patience_s
    while True:
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > until:
                return
        for pid in _lines(group / "cgroup.procs"):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.001)


def oom_kills(group: Path) -> int:
    """How many processes the memory limit of a group has killed so far."""
    for name in ("memory.oom_control", "memory.events"):
        for line in _lines(group / name):
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                return int(value)
    return 0


def is_memory(folder: Path) -> bool:
    """Whether a folder lies on a tmpfs."""
    device = folder.stat().st_dev
    for line in _lines(Path("/proc/self/mountinfo")):
        fields, _, rest = line.partition(" - ")
        if fields.split()[2] == f"{os.major(device)}:{os.minor(device)}":
            return rest.startswith("tmpfs ")
    return False


def _folder(root: str, place: Path, path: str) -> Path:
    """Where the group ``path`` lies under a mount of the hierarchy whose root is ``root``."""
    inside = os.path.relpath(path, root)
    return place if inside == "." or inside.startswith("..") else place / inside


def _may_make(parent: Path) -> bool:
    """Whether groups can be made in ``parent`` and processes moved into them. Trying is the only sure way: permission
    bits say yes on a read-only mount."""
    probe = parent / f"patchgym-probe-{secrets.token_hex(4)}"
    if not os.access(parent / "cgroup.procs", os.W_OK):
        return False
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


def _put(path: Path, value: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)
