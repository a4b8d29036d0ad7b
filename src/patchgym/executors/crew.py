"""The near side: workers on the nodes of a cluster, what each has in hand, and the work of those that were lost.

Nothing is sent before a slot is free for it, and nothing to a node that has not said that it can do the work. A worker
that is lost gives its items back, and they are done again elsewhere. An item that cost two workers is tried a third
time in a worker that does nothing else, so that what it shared a worker with is not blamed for it.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Self

from pydantic import Field, JsonValue, ValidationError

from patchgym.config import Settings
from patchgym.content import ObjectStore
from patchgym.content.packs import unpack
from patchgym.errors import DataError, PrerequisiteError, WorkLostError
from patchgym.executors.fleet import UNPLACED, Fleet, Hand, Known, Node, WorkerLost, send_objects
from patchgym.executors.node import MOST_PACK
from patchgym.executors.wire import encode_record, encode_spec, read_answer
from patchgym.executors.work import Item, Need, Result, WorkSpec
from patchgym.records import Record

TRIES = 3
_TICK_S, _PAUSE_S = 1.0, 0.05
_STARTS = 3
_AT_ONCE = 16  # workers that wait for room or start: more would be in others' way
OnEvent = Callable[[dict[str, JsonValue]], None]
"""Called with what a run keeps of its workers: JSON objects whose ``event`` is ``node``, ``refused``, ``lost`` or
``set_aside``."""


class CrewSettings(Settings):
    """What a worker takes of its node, where it is other than the work says: ``cpus``, ``memory_gb``, ``gpus``, and how
    many items it has in hand at once (``slots``). ``patience`` is how many seconds to wait for a first worker."""

    cpus: float | None = Field(None, ge=0)
    memory_gb: float | None = Field(None, ge=0)
    gpus: float | None = Field(None, ge=0)
    slots: int | None = Field(None, ge=1)
    patience: float = Field(120.0, gt=0)

    def need(self, usual: Need) -> Need:
        """What a worker takes."""
        memory = usual.memory_bytes if self.memory_gb is None else int(self.memory_gb * 1024**3)
        return Need(
            cpus=usual.cpus if self.cpus is None else self.cpus,
            memory_bytes=memory,
            gpus=usual.gpus if self.gpus is None else self.gpus,
            slots=usual.slots if self.slots is None else self.slots,
        )


class CrewReport(Record):
    """What became of a crew: ``nodes`` that worked, ``workers`` that were lost, items that were done again for it
    (``redone``), and the names of those that were given up (``set_aside``)."""

    nodes: int = 0
    workers_lost: int = 0
    redone: int = 0
    set_aside: tuple[str, ...] = ()


class _Worker:
    """A worker as the near side sees it."""

    def __init__(self, hand: Hand) -> None:
        self.hand = hand
        self.node = Node("", UNPLACED, 0.0, 0.0, 0.0, alive=True)
        self.load = 0
        self.ready = self.reserved = self.lost = False
        self.changed = asyncio.Event()


class Crew(Generic[Item, Result]):
    """Does the items of one kind of work on a fleet of nodes (an ``Executor``). Use it as an async context manager, in
    one event loop."""

    def __init__(
        self,
        fleet: Fleet,
        work: WorkSpec[Item, Result],
        objects: ObjectStore,
        settings: CrewSettings | None = None,
        *,
        concurrency: int | None = None,
        on_event: OnEvent = lambda event: None,
    ) -> None:
        """``objects`` holds what items name and takes in what results name. At most ``concurrency`` items are in hand
        at once (None: as many as the nodes have room for)."""
        self._fleet, self._work, self._objects = fleet, work, objects
        self._settings = settings or CrewSettings()
        self.need = self._settings.need(work.need)
        self._most = None if concurrency is None else max(1, math.ceil(concurrency / self.need.slots))
        self._gate = asyncio.Semaphore(concurrency) if concurrency is not None else None
        self._spec = encode_spec(work)
        self._on_event = on_event
        self._nodes: dict[str, Node] = {}
        self._workers: list[_Worker] = []
        self._waiting: deque[asyncio.Future[_Worker]] = deque()
        self._starting: set[asyncio.Task[None]] = set()
        self._managing: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._alone = asyncio.Lock()
        self._ids: dict[bytes, int] = {}
        self._workers_lost = self._redone = self._in_hand = 0
        self._set_aside: list[str] = []
        self._fewer_since: float | None = None
        self._unplaced, self._why_unplaced = 0, ""  # workers, one after the other, that did not start anywhere

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def do(self, item: Item) -> Result:
        """See ``Executor.do``.

        Raises:
            PrerequisiteError: no node can do this work, or none has room for it.
        """
        if self._gate is None:
            return await self._do(item)
        async with self._gate:
            return await self._do(item)

    def report(self) -> CrewReport:
        """What became of it so far."""
        used = sum(node.worked for node in self._nodes.values())
        return CrewReport(
            nodes=used, workers_lost=self._workers_lost, redone=self._redone, set_aside=tuple(self._set_aside)
        )

    async def close(self) -> None:
        """End every worker. May be called twice."""
        tasks = [*self._starting, *([self._managing] if self._managing is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._managing = None
        workers, self._workers = self._workers, []
        for worker in workers:
            if not worker.ready:  # it would not answer in time
                worker.hand.kill()
        await asyncio.gather(*(worker.hand.end() for worker in workers if worker.ready))

    async def _do(self, item: Item) -> Result:
        name, why = self._work.name(item), ""
        self._in_hand += 1
        try:
            for strike in range(TRIES):
                try:
                    if strike < TRIES - 1:
                        return await self._try(item, name)
                    async with self._alone:
                        return await self._try(item, name, alone=True)
                except WorkerLost as lost:
                    why, again = lost.why, strike < TRIES - 1
                    self._redone += again
                    self._on_event({"event": "lost", "item": name, "node": lost.node, "why": why, "again": again})
                except WorkLostError as error:
                    self._note_set_aside(name, str(error))
                    raise
        finally:
            self._in_hand -= 1
        self._note_set_aside(name, why)
        raise WorkLostError(
            f"{name} cost {TRIES} workers and is set aside",
            why=f"The last one: {why}",
            mend="Look into the logs of that node; memory is the usual cause (--worker memory_gb=N).",
        )

    def _note_set_aside(self, name: str, why: str) -> None:
        self._set_aside.append(name)
        self._on_event({"event": "set_aside", "item": name, "why": why})

    async def _try(self, item: Item, name: str, *, alone: bool = False) -> Result:
        worker = await (self._worker_alone() if alone else self._slot())
        try:
            data, needs = encode_record(item, name), self._work.needs(item)
            await self._provide(worker, needs)
            head, body, pack = read_answer(await worker.hand.ask("do", data), worker.node.name)
            if head.get("lacking"):  # its cache was emptied under way
                worker.node.known.forget()
                await self._provide(worker, needs)
                head, body, pack = read_answer(await worker.hand.ask("do", data), worker.node.name)
            if head.get("lacking"):
                raise DataError(f"{worker.node.name} does not keep what it is sent", why=f"{name} could not be done.")
            return await asyncio.to_thread(self._received, name, worker.node.name, body, pack)
        except WorkerLost as lost:
            self._drop(worker)
            raise WorkerLost(worker.node.name, lost.why) from lost  # a hand knows no more than an id
        finally:
            self._give_back(worker)

    def _give_back(self, worker: _Worker) -> None:
        worker.load -= 1
        worker.reserved = worker.reserved and worker.load > 0
        worker.changed.set()
        self._deal()

    async def _worker_alone(self) -> _Worker:
        """A slot of a worker whose other items have come to their end and that is given no more."""
        while True:
            worker = await self._slot()
            worker.reserved = True
            try:
                while worker.load > 1 and not worker.lost:
                    worker.changed.clear()
                    await worker.changed.wait()
            except asyncio.CancelledError:
                self._give_back(worker)
                raise
            if not worker.lost:
                return worker
            self._give_back(worker)

    def _received(self, name: str, node: str, body: bytes, pack: bytes) -> Result:
        """The result, once all that it names is here."""
        if pack:
            unpack(pack, self._objects, MOST_PACK)
        try:
            result = self._work.RESULT.model_validate_json(body)
        except ValidationError as error:
            raise DataError(f"{node} sent no result of {name}", why=str(error)[:400]) from error
        missing = [one for one in self._work.leaves(result) if one not in self._objects]  # type: ignore[arg-type]
        if missing:
            raise DataError(f"{node} sent {name} without object {missing[0]}", why="The result names it.")
        return result  # type: ignore[return-value]

    async def _provide(self, worker: _Worker, needs: frozenset[str]) -> None:
        """Send what a node lacks of these objects; one at a time for each node, so that nothing goes there twice."""
        node = worker.node
        if all(root in node.known for root in needs):
            return
        async with node.sending:
            await send_objects(worker.hand, node, self._objects, needs)

    async def _slot(self) -> _Worker:
        """A slot of a worker, counted; whoever takes it gives it back."""
        if self._managing is None:
            self._managing = asyncio.create_task(self._manage())
            self._managing.add_done_callback(self._ended)
        worker = self._free() if not self._waiting else None
        if worker is not None:
            worker.load += 1
            return worker
        future: asyncio.Future[_Worker] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._wake.set()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._give_back(future.result())
            raise

    def _free(self) -> _Worker | None:
        able = [one for one in self._workers if one.ready and not one.reserved and one.load < self.need.slots]
        return min(able, key=lambda one: one.load, default=None)

    def _deal(self) -> None:
        """Give free slots to those that wait, the first first."""
        while self._waiting:
            if self._waiting[0].done():  # nobody waits any more
                self._waiting.popleft()
                continue
            worker = self._free()
            if worker is None:
                return
            worker.load += 1
            self._waiting.popleft().set_result(worker)

    def _drop(self, worker: _Worker) -> None:
        if not worker.lost:
            worker.lost = True
            self._workers_lost += 1
            worker.changed.set()
            self._let_go(worker)

    async def _manage(self) -> None:
        """Have as many workers as there is work for and room; until cancelled."""
        while True:
            self._wake.clear()
            await self._look()
            await asyncio.sleep(_PAUSE_S)  # many ask at once
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._wake.wait()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """An error of what looks after the workers ends all that waits for one."""
        self._starting.discard(task)
        self._managing = None if task is self._managing else self._managing
        error = None if task.cancelled() else task.exception()
        if error is not None:
            waiting, self._waiting = self._waiting, deque()
            for future in waiting:
                if not future.done():
                    future.set_exception(error)

    async def _see(self) -> None:
        for node in await self._fleet.nodes():
            if node.id in self._nodes:
                self._nodes[node.id].take(node)
            else:
                node.known = Known(self._ids)
                self._nodes[node.id] = node
                self._unplaced = 0

    async def _look(self) -> None:
        await self._see()
        for worker in [one for one in self._workers if not one.node.alive]:
            self._drop(worker)
        alive = [node for node in self._nodes.values() if node.alive]
        able = [node for node in alive if not node.refused]
        wanted = math.ceil(self._in_hand / self.need.slots)
        wanted = min(wanted, self._most) if self._most is not None else wanted
        trying = bool(able) and self._unplaced < _STARTS
        while trying and len(self._workers) < wanted and len(self._starting) < _AT_ONCE:
            self._hire()
        self._must_be_some(alive, able)

    def _must_be_some(self, alive: list[Node], able: list[Node]) -> None:
        """End what waits where no worker comes.

        Raises:
            PrerequisiteError: all nodes refuse; or workers do not start; or none did for as long as patience lasts.
        """
        now = asyncio.get_running_loop().time()
        if not self._waiting or any(worker.ready for worker in self._workers):
            self._fewer_since = None
            return
        self._fewer_since = self._fewer_since or now
        refused = [f"{node.name}: {node.refused}" for node in alive if node.refused]
        if refused and not able:
            raise PrerequisiteError("No node of the cluster can do this work", why=" ".join(refused[:3])[:1500])
        if self._unplaced >= _STARTS and not self._starting:
            raise PrerequisiteError("Workers do not start on this cluster", why=self._why_unplaced)
        if now - self._fewer_since > self._settings.patience:
            need = self.need
            have = ", ".join(f"{node.name} has {node.cpus:g} CPUs, {node.gpus:g} GPUs" for node in alive[:5])
            raise PrerequisiteError(
                "The cluster has no room for a worker",
                why=f"One takes {need.cpus:g} CPUs, {need.memory_bytes / 1024**3:g} GB and {need.gpus:g} GPUs; "
                f"{have or 'no node is there'}; waited {self._settings.patience:g} s.",
                mend="Add nodes, wait for others' work to end, or ask for less: --worker cpus=N.",
            )

    def _hire(self) -> None:
        shunned = [node.id for node in self._nodes.values() if node.refused]
        worker = _Worker(self._fleet.hire(self.need, self._spec, shunned))
        self._workers.append(worker)
        task = asyncio.create_task(self._start(worker))
        self._starting.add(task)
        task.add_done_callback(self._ended)

    async def _start(self, worker: _Worker) -> None:
        """Ask a new worker where it is, and whether its node can do the work; only then is it given any."""
        try:
            worker.node = node = await self._node(await worker.hand.place())
        except WorkerLost as lost:
            self._unplaced, self._why_unplaced = self._unplaced + 1, lost.why
            self._let_go(worker)
            return
        self._unplaced = 0
        try:
            known = await node.meet(worker.hand)
        except WorkerLost as lost:
            node.failures += 1
            if node.failures >= _STARTS and not node.refused:
                node.refused = f"{_STARTS} workers did not start there. {lost.why}"
                self._on_event({"event": "refused", "node": node.name, "why": node.refused})
            self._let_go(worker)
            return
        if not known:
            told = {"event": "refused", "why": node.refused} if node.refused else {"event": "node"}
            self._on_event({**told, **node.told()})
        if node.refused:
            self._let_go(worker)
            return
        worker.ready = True
        self._deal()

    async def _node(self, id: str) -> Node:
        """The node of this id, which may have come just now."""
        if id not in self._nodes:
            await self._see()
        return self._nodes[id]

    def _let_go(self, worker: _Worker) -> None:
        self._workers = [one for one in self._workers if one is not worker]
        worker.hand.kill()
        self._wake.set()
