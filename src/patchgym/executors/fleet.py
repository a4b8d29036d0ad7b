"""Nodes and workers as the near side sees them, whatever carries the bytes."""

import asyncio
import platform
import time
from collections.abc import Collection
from importlib.metadata import version
from typing import Protocol

from pydantic import JsonValue, ValidationError

from patchgym.content import ObjectStore
from patchgym.content.packs import closure, pack
from patchgym.executors.wire import read_answer
from patchgym.executors.work import Need
from patchgym.executors.worker import NodeReport

_CLOCK_TRIES = 5
_PACK_BYTES = 32 * 1024**2
_ASK_FIRST = 64
UNPLACED = "a node that nobody knows yet"


class WorkerLost(Exception):
    """A worker, or its node, is gone. It never leaves this package."""

    def __init__(self, node: str, why: str) -> None:
        super().__init__(why)
        self.node, self.why = node, why


class Hand(Protocol):
    """A worker process on a node: what ``worker.Worker`` answers, from afar."""

    async def place(self) -> str:
        """The id of its node, once it was found room and has started.

        Raises:
            WorkerLost: it did not start.
        """
        ...

    async def ask(self, method: str, *arguments: bytes) -> bytes:
        """Call a method of the worker.

        Raises:
            WorkerLost: it is gone.
        """
        ...

    async def end(self) -> None:
        """Let it close what it holds, for a bounded time, and end it."""
        ...

    def kill(self) -> None:
        """End it at once, if it is still there."""
        ...


class Known:
    """Which objects a node has, a byte for each; ids are numbered once for all nodes."""

    def __init__(self, ids: dict[bytes, int]) -> None:
        self._ids = ids
        self._has = bytearray()

    def __contains__(self, object_id: str) -> bool:
        at = self._ids.get(bytes.fromhex(object_id), -1)
        return 0 <= at < len(self._has) and self._has[at] == 1

    def add(self, object_id: str) -> None:
        """Note that the node has an object, and all that it reaches."""
        at = self._ids.setdefault(bytes.fromhex(object_id), len(self._ids))
        if at >= len(self._has):
            self._has.extend(bytes(at + 1 - len(self._has)))
        self._has[at] = 1

    def forget(self) -> None:
        """Know nothing any more."""
        self._has = bytearray()


class Node:
    """A node: what it has (``cpus``, ``memory_bytes``, ``gpus``), what it said of itself, and why it gets no work
    (``refused``, empty where it does). ``offset_s`` is how far its clock is ahead of ours, to within ``within_s``."""

    def __init__(self, id: str, name: str, cpus: float, memory_bytes: float, gpus: float, *, alive: bool) -> None:
        self.id, self.name, self.alive = id, name, alive
        self.cpus, self.memory_bytes, self.gpus = cpus, memory_bytes, gpus
        self.known = Known({})
        self.sending = asyncio.Lock()
        self.report: NodeReport | None = None
        self.refused = ""
        self.failures = 0
        self.offset_s: float | None = None
        self.within_s: float | None = None
        self._meeting = asyncio.Lock()

    @property
    def worked(self) -> bool:
        """Whether it was given work."""
        return self.report is not None and not self.refused

    def take(self, seen: "Node") -> None:
        """Go on with what a later look at it showed."""
        self.alive, self.cpus, self.memory_bytes, self.gpus = seen.alive, seen.cpus, seen.memory_bytes, seen.gpus

    def room(self, need: Need) -> int:
        """How many workers it has room for, were it ours alone."""
        parts = ((self.cpus, need.cpus), (self.memory_bytes, need.memory_bytes), (self.gpus, need.gpus))
        return min((int(has / wants + 1e-9) for has, wants in parts if wants), default=1)

    async def meet(self, hand: Hand) -> bool:
        """Wait until a worker answers; the first one says what its node can do, and its clock is held against ours.
        Whether there was one before.

        Raises:
            WorkerLost: it did not start.
        """
        data = await hand.ask("report")
        async with self._meeting:
            if self.report is not None:
                return True
            try:
                report = NodeReport.model_validate_json(data)
            except ValidationError as error:
                raise WorkerLost(self.name, f"It does not answer as a worker does: {error}") from error
            self.offset_s, self.within_s = await clock_offset(hand)
            self.refused, self.report = _refusal(report), report
            return False

    def told(self) -> dict[str, JsonValue]:
        """What a run keeps of it."""
        assert self.report is not None
        return {
            "node": self.name,
            "host": self.report.host,
            "python": self.report.python,
            "patchgym": self.report.patchgym,
            "clock_offset_s": None if self.offset_s is None else round(self.offset_s, 6),
            "clock_within_s": None if self.within_s is None else round(self.within_s, 6),
        }


class Fleet(Protocol):
    """What nodes there are, and who finds room for a worker among them."""

    async def nodes(self) -> list[Node]:
        """Every node that there is or was, as it is now."""
        ...

    def hire(self, need: Need, spec: bytes, shunned: Collection[str]) -> Hand:
        """Start a worker where there is room for it, now or later, on none of the ``shunned`` nodes (ids)."""
        ...


async def send_objects(hand: Hand, node: Node, objects: ObjectStore, roots: frozenset[str]) -> None:
    """Give a node what it lacks of ``roots`` and all that they reach. Of more than a few objects it is asked first
    which of them it has: its cache outlives a run.

    Raises:
        DataError: an object is missing here.
        StorageError: the node's disk is full.
        WorkerLost: the worker is gone.
    """
    ids = await asyncio.to_thread(closure, objects, roots, node.known.__contains__)
    lacking = ids
    if len(ids) > _ASK_FIRST:
        answered = await hand.ask("missing", "\n".join(ids).encode())
        told = set(answered.decode().splitlines())
        lacking = [one for one in ids if one in told]
    packs = pack(objects, lacking, _PACK_BYTES)
    while (data := await asyncio.to_thread(next, packs, None)) is not None:
        read_answer(await hand.ask("receive", data), node.name)
    for one in ids:
        node.known.add(one)


async def clock_offset(hand: Hand) -> tuple[float, float]:
    """How many seconds a worker's clock is ahead of ours, and to within how many: half the way there and back of the
    quickest of several questions (as NTP does, RFC 5905, section 8).

    Raises:
        WorkerLost: the worker is gone.
    """
    found = []
    for _ in range(_CLOCK_TRIES):
        asked = time.time()
        theirs = float(await hand.ask("clock"))
        took = time.time() - asked
        found.append((took / 2, theirs - asked - took / 2))
    within, offset = min(found)
    return offset, within


def _refusal(report: NodeReport) -> str:
    """Why a node gets no work; empty where it does."""
    ours = (platform.python_version_tuple()[:2], version("patchgym"))
    if report.trouble:
        return report.trouble
    if tuple(report.python.split(".")[:2]) != ours[0]:
        return f"It runs Python {report.python}, and this is {platform.python_version()}."
    if report.patchgym != ours[1]:
        return f"It has patchgym {report.patchgym}, and this is {ours[1]}. Install the same on every node."
    return ""
