"""A fleet of processes on this machine: real workers that can be killed, each node with a cache of its own. What a crew
does is tested on this, with and without Ray."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from patchgym.executors.fleet import Node, WorkerLost
from patchgym.executors.work import Need
from patchgym.executors.worker import Worker
from tests.workshop import here


class ProcessHand:
    """A worker process, asked over its standard input and output: in each message the number of the question, and then
    its parts, each after its length."""

    def __init__(self, fleet: "ProcessFleet", need: Need, spec: bytes, shunned: Collection[str]) -> None:
        self.node = ""
        self.process: subprocess.Popen[bytes] | None = None
        self._fleet, self._need, self._shunned = fleet, need, frozenset(shunned)
        self._spec = spec
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._count = 0

    async def place(self) -> str:
        while (name := self._fleet.free(self._need, self._shunned)) is None:  # noqa: ASYNC110 -- room comes when a process ends
            await asyncio.sleep(0.05)
        self._start(name)
        return name

    def _start(self, name: str) -> None:
        self.node, cache = name, self._fleet.folder / name
        self._fleet.hired.append(name)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.executors.processes", str(cache)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "PATCHGYM_CACHE": str(cache),
                "PYTHONPATH": os.pathsep.join(part for part in (str(Path.cwd()), *sys.path) if part),
            },
        )

    async def ask(self, method: str, *arguments: bytes) -> bytes:
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
            self._write(0, b"", self._spec)
        self._count += 1
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._write(self._count, method.encode(), *arguments)
        self._waiting[self._count] = future
        return await future

    def _write(self, number: int, *parts: bytes) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        try:
            send(self.process.stdin.fileno(), number, *parts)
        except OSError as error:
            raise WorkerLost(self.node, "It is gone.") from error

    async def _read(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        while (message := await asyncio.to_thread(receive, self.process.stdout.fileno())) is not None:
            number, parts = message
            future = self._waiting.pop(number)
            if not future.done():  # nobody waits for it any more
                future.set_result(parts[0])
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(WorkerLost(self.node, "Its process ended."))

    async def end(self) -> None:
        self.kill()
        if self._reading is not None:
            await self._reading

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    @property
    def lives(self) -> bool:
        return self.process is not None and self.process.poll() is None


class ProcessFleet:
    """Nodes of one CPU, by their names; more can be added, and a node can be ended with all that runs there."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        self.alive = dict.fromkeys(names, True)
        self.hands: list[ProcessHand] = []
        self.hired: list[str] = []

    async def nodes(self) -> list[Node]:
        return [Node(name, name, 1.0, 8e9, 0.0, alive=alive) for name, alive in self.alive.items()]

    def hire(self, need: Need, spec: bytes, shunned: Collection[str]) -> ProcessHand:
        hand = ProcessHand(self, need, spec, shunned)
        self.hands.append(hand)
        return hand

    def free(self, need: Need, shunned: Collection[str]) -> str | None:
        """A node that has room: one of its CPU that no worker has."""
        taken = {hand.node for hand in self.hands if hand.lives}
        names = (name for name, alive in self.alive.items() if alive and name not in taken and name not in shunned)
        return next(names, None) if need.cpus <= 1 else None

    def end(self, name: str) -> None:
        """The node and its workers are gone."""
        self.alive[name] = False
        for hand in self.hands:
            if hand.node == name:
                hand.kill()


def send(descriptor: int, number: int, *parts: bytes) -> None:
    """One message."""
    body = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    data = number.to_bytes(8, "big") + len(body).to_bytes(8, "big") + body
    while data:
        data = data[os.write(descriptor, data) :]


def receive(descriptor: int) -> tuple[int, list[bytes]] | None:
    """One message; None at the end."""
    head = _exactly(descriptor, 16)
    if head is None:
        return None
    body = _exactly(descriptor, int.from_bytes(head[8:], "big"))
    if body is None:
        return None
    parts = []
    while body:
        size = int.from_bytes(body[:8], "big")
        parts.append(body[8 : 8 + size])
        body = body[8 + size :]
    return int.from_bytes(head[:8], "big"), parts


def _exactly(descriptor: int, size: int) -> bytes | None:
    found = b""
    while len(found) < size:
        more = os.read(descriptor, min(1 << 20, size - len(found)))
        if not more:
            return None
        found += more
    return found


async def serve(cache: Path) -> None:
    """Be a worker until standard input ends."""
    out, running = os.dup(1), set[asyncio.Task[None]]()
    os.dup2(2, 1)
    first = await asyncio.to_thread(receive, 0)
    assert first is not None
    worker = Worker(first[1][1], cache, here)  # this interpreter's environment: no download

    async def one(number: int, method: str, arguments: list[bytes]) -> None:
        send(out, number, await getattr(worker, method)(*arguments))

    while (message := await asyncio.to_thread(receive, 0)) is not None:
        number, (method, *arguments) = message
        task = asyncio.create_task(one(number, method.decode(), arguments))
        running.add(task)
        task.add_done_callback(running.discard)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
