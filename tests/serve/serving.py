"""A server over a tiny task, its sandboxes real, and clients of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from starlette.applications import Starlette

from patchgym.records import Limits, Task
from patchgym.reward import RewardSettings
from patchgym.rollout import Collector
from patchgym.serve.app import make_app
from patchgym.serve.desk import Desk, Rules
from patchgym.serve.keys import Keys
from patchgym.serve.serving import address_of, listen, serve
from patchgym.store import RunDirectory
from tests.records_for_tests import make_manifest
from tests.workshop import calc_task, here, sandboxes

ONE, TWO = "token-of-client-one", "token-of-client-two"
TOKENS = {"one": ONE, "two": TWO}
FIX = {
    "tool": "edit_file",
    "arguments": {
        "path": "calc.py",
        "old": "    if value > high:\n        return low",
        "new": "    if value > high:\n        return high",
    },
}


@dataclass
class Place:
    """What is served, and how it is reached."""

    app: Starlette
    desk: Desk
    run: RunDirectory
    task: Task
    address: str = ""

    def client(self, token: str | None = None) -> httpx2.AsyncClient:
        """A client with a token; it asks the application itself where nothing listens."""
        transport = None if self.address else httpx2.ASGITransport(self.app, raise_app_exceptions=False)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx2.AsyncClient(
            transport=transport,
            base_url=self.address or "http://127.0.0.1:1",
            headers=headers,
            timeout=120,
            trust_env=False,
        )


@contextmanager
def _made(
    folder: Path,
    *,
    tokens: Mapping[str, str] | None = None,
    rules: Rules | None = None,
    limits: Limits | None = None,
) -> Iterator[Place]:
    run = RunDirectory.open_for_writing(folder / "run", make_manifest())
    try:
        task = calc_task(run.objects, limits=limits)
        run.keep_tasks([task])
        with sandboxes(run.objects, folder) as factory:
            rules = rules or Rules()
            collector = Collector(run, factory, here, RewardSettings(), 0)
            desk = Desk([task], run, collector, rules)
            yield Place(make_app(desk, Keys(tokens or {})), desk, run, task)
    finally:
        run.close()


@asynccontextmanager
async def at_hand(folder: Path, **how: Any) -> AsyncIterator[Place]:
    """The application and its sessions, reached without a socket."""
    with _made(folder, **how) as place:
        async with place.desk:
            yield place


@asynccontextmanager
async def listening(folder: Path, **how: Any) -> AsyncIterator[Place]:
    """The same on a socket."""
    with _made(folder, **how) as place:
        ready, ended = asyncio.Event(), asyncio.Event()
        with listen("127.0.0.1", 0) as on:
            place.address = address_of(on)
            serving = asyncio.create_task(serve(place.app, place.desk, on, ready.set, ended))
            await ready.wait()
            try:
                yield place
            finally:
                ended.set()
                await serving


async def opened(client: httpx2.AsyncClient, **more: object) -> str:
    """A session on the task: its address."""
    answer = await client.post("/sessions", json={"task": "calc-1", **more})
    assert answer.status_code == 201, answer.text
    return f"/sessions/{answer.json()['session']}"


async def stepped(client: httpx2.AsyncClient, session: str, **action: object) -> dict[str, Any]:
    """What a step came to."""
    answer = await client.post(f"{session}/step", json=action)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def until(so: Callable[[], Awaitable[object]]) -> None:
    """Wait, for a minute at most, until something is so."""
    for _ in range(1200):
        if await so():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it never was so")


async def none_left() -> bool:
    """Whether every sandbox is gone."""
    return not sandboxes_alive()


async def busy(client: httpx2.AsyncClient, session: str) -> bool:
    """Whether a session is at work."""
    return bool((await client.get(session)).json()["busy"])


def refused(answer: httpx2.Response, status: int, kind: str) -> None:
    """Check that an answer is a problem of a kind, with what to do about it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["type"], problem["status"]) == (f"urn:patchgym:{kind}", status)
    assert problem["title"]
    assert problem["mend"]


def sandboxes_alive() -> int:
    """Processes of sandboxes that descend from this one, by what starts them."""
    parents, names = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = stat.read_text().rpartition(") ")
        except OSError:  # it ended meanwhile
            continue
        state, parent = rest.split()[:2]
        if state != "Z":
            number = int(head.partition(" ")[0])
            parents[number], names[number] = int(parent), head.partition("(")[2]
    mine = {int(Path("/proc/self").readlink().name)}
    while more := {number for number, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(names.get(number, "").startswith("bwrap") for number in mine)
