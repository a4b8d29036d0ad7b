"""What serving over HTTP costs: many clients on the loopback that reset, step, grade and close.

Prints one JSON document. Claims: a step over HTTP takes a few milliseconds more than the same step in a bare sandbox
with its snapshot; an open session costs a few megabytes; a server that is full says so at once.

    python benchmarks/serve.py [--clients 8] [--sessions 32] [--seconds 120]

``patchgym serve`` runs in a process of its own over one tiny task. The floor is the same actions by ``Collector`` in
this process, one after another, without HTTP. Latencies are what clients wait, with so many clients at once and with
one. Memory is the proportional share (PSS) of the server and everything that it started, with open sessions less
without, over their number. ``full`` is how long a refusal takes while as many resets come as ``--flood`` says.
No more than ``--sessions`` sessions are opened, and none after ``--seconds``.
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from statistics import median

import httpx2

from patchgym.content import Entry, ObjectStore, diff_trees, patch_scope
from patchgym.policy.scripted import ScriptedPolicy
from patchgym.records import (
    Action,
    Environment,
    Limits,
    Message,
    RunManifest,
    Sample,
    Sampling,
    Source,
    Step,
    Task,
    TaskSetManifest,
    Tests,
    ToolSpec,
)
from patchgym.reward import RewardSettings
from patchgym.rollout import Collector, RolloutSettings
from patchgym.sandbox import NamespaceSandboxes
from patchgym.sandbox.environments import build_environment
from patchgym.store import RunDirectory
from patchgym.tasks.taskset import write_task_set

_BUGGY = "def clamp(value, low, high):\n    return max(low, min(value, low))\n"
_FIXED = _BUGGY.replace("min(value, low)", "min(value, high)")
_TEST = "from calc import clamp\n\n\ndef test_it():\n    assert clamp(10, 0, 9) == 9\n"
_ACTIONS = (
    Action(tool="read_file", arguments={"path": "calc.py"}),
    Action(tool="run_command", arguments={"command": "true"}),
    Action(tool="write_file", arguments={"path": "calc.py", "content": _FIXED}),
    Action(tool="submit", arguments={}),
)
_THEN = datetime(2026, 1, 1, tzinfo=UTC)
Waits = dict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--sessions", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--flood", type=int, default=1000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="patchgym-bench-serve-") as scratch:
        folder = Path(scratch)
        bare = asyncio.run(bare_waits(folder, max(4, asked.sessions // 8)))
        with serving(make_set(folder), folder, asked.clients) as (address, process):
            figures = asyncio.run(measure(bare, address, process, asked))
    json.dump(figures, sys.stdout, indent=1)
    print()


async def measure(bare: Waits, address: str, process: int, asked: argparse.Namespace) -> dict[str, object]:
    """Every figure."""
    alone = await load(address, 1, max(4, asked.sessions // 8), asked.seconds / 3)
    began = time.monotonic()
    many = await load(address, asked.clients, asked.sessions, asked.seconds)
    took = time.monotonic() - began
    memory = await memory_a_session(address, process, asked.clients)
    full = await flood(address, asked.clients, asked.flood)
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "clients": asked.clients,
        "sessions": len(many["close"]),
        "sessions_a_second": round(len(many["close"]) / took, 2),
        "bare_ms": summary(bare),
        "one_client_ms": summary(alone),
        "many_clients_ms": summary(many),
        "step_over_bare_ms": round(1000 * (median(alone["step"]) - median(bare["step"])), 2),
        "memory_a_session_mb": memory,
        "full": full,
    }


def summary(waits: Waits) -> dict[str, dict[str, float]]:
    """Median and 99th percentile, in milliseconds."""
    return {
        name: {
            "median": round(1000 * median(found), 2),
            "p99": round(1000 * sorted(found)[min(len(found) - 1, int(0.99 * len(found)))], 2),
            "count": len(found),
        }
        for name, found in waits.items()
        if found
    }


async def load(address: str, clients: int, sessions: int, seconds: float) -> Waits:
    """What so many clients at once wait for, until so many sessions were had or time is up."""
    waits: Waits = defaultdict(list)
    until, left = time.monotonic() + seconds, iter(range(sessions))

    async def one() -> None:
        async with asking(address) as client:
            for _ in left:
                if time.monotonic() > until:
                    return
                opened = await timed(waits, "reset", client, "POST", "/sessions", {"task": "calc-1"})
                session = f"/sessions/{opened['session']}"
                for action in _ACTIONS:
                    body = {"tool": action.tool, "arguments": action.arguments}
                    await timed(waits, "step", client, "POST", f"{session}/step", body)
                graded = await timed(waits, "grade", client, "POST", f"{session}/grade")
                assert graded["verdict"] == "resolved", graded
                await timed(waits, "close", client, "DELETE", session)

    await asyncio.gather(*(one() for _ in range(clients)))
    return waits


async def timed(
    waits: Waits, name: str, client: httpx2.AsyncClient, method: str, path: str, body: object = None
) -> dict[str, object]:
    """One request, its time noted."""
    clock = time.monotonic()
    answer = await client.request(method, path, json=body)
    waits[name].append(time.monotonic() - clock)
    assert answer.is_success, answer.text
    found: dict[str, object] = answer.json()
    return found


async def bare_waits(scratch: Path, sessions: int) -> Waits:
    """The same actions without HTTP: how long until the first is asked for, between two steps, and for the grade."""
    waits: Waits = defaultdict(list)
    run = RunDirectory.open_for_writing(scratch / "bare", _manifest())
    factory = NamespaceSandboxes(run.objects)
    try:
        task = make_task(run.objects)
        collector = Collector(run, factory, build_environment, RewardSettings(), 0)
        for number in range(sessions + 1):
            began, script = time.monotonic(), _Timed()
            steps: list[float] = []

            def stepped(step: Step, steps: list[float] = steps, script: "_Timed" = script) -> None:
                steps.append(time.monotonic() - script.asked_at)

            made = await collector.attempt("bare", task, number, script, RolloutSettings(), stepped)
            if number:  # the first one builds and checks out
                waits["reset"].append(script.first_at - began)
                waits["step"] += steps
                waits["grade"].append(made.timing.grading_seconds or 0.0)
    finally:
        factory.close()
        run.close()
    return waits


class _Timed(ScriptedPolicy):
    """The script, which notes when it is asked."""

    spec = "bare"

    def __init__(self) -> None:
        super().__init__(_ACTIONS, "bare")
        self.first_at = self.asked_at = 0.0

    def for_task(self, task: Task, objects: ObjectStore) -> "_Timed":
        return self

    async def check(self) -> None: ...

    async def close(self) -> None: ...

    async def sample(self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling) -> Sample:
        self.asked_at = time.monotonic()
        self.first_at = self.first_at or self.asked_at
        return await super().sample(messages, tools, sampling)


async def memory_a_session(address: str, process: int, sessions: int) -> float | None:
    """Megabytes that an open session with a living sandbox takes; None where the kernel does not tell."""
    before = _pss(process)
    async with asking(address) as client:
        waits: Waits = defaultdict(list)
        opened = []
        for _ in range(sessions):
            found = await timed(waits, "reset", client, "POST", "/sessions", {"task": "calc-1"})
            opened.append(f"/sessions/{found['session']}")
            await timed(waits, "step", client, "POST", f"{opened[-1]}/step", {"command": "true"})
        after = _pss(process)
        for session in opened:
            await timed(waits, "close", client, "DELETE", session)
    return None if before is None or after is None else round((after - before) / sessions / 1e6, 2)


async def flood(address: str, clients: int, resets: int) -> dict[str, float]:
    """So many resets at once against a server that is full after ``clients``."""
    waits: dict[int, list[float]] = defaultdict(list)

    async def one(client: httpx2.AsyncClient) -> str | None:
        clock = time.monotonic()
        answer = await client.post("/sessions", json={"task": "calc-1"})
        waits[answer.status_code].append(time.monotonic() - clock)
        return str(answer.json()["session"]) if answer.status_code == 201 else None

    async with asking(address) as client:
        began = time.monotonic()
        opened = await asyncio.gather(*(one(client) for _ in range(resets)))
        took = time.monotonic() - began
        for name in filter(None, opened):
            await client.delete(f"/sessions/{name}")
    assert set(waits) <= {201, 429}, sorted(waits)
    assert len(waits[201]) <= 2 * clients
    return {
        "resets": resets,
        "opened": len(waits[201]),
        "refused": len(waits[429]),
        "refusal_median_ms": round(1000 * median(waits[429]), 2) if waits[429] else 0.0,
        "answers_a_second": round(resets / took, 1),
    }


def asking(address: str) -> httpx2.AsyncClient:
    """A client that keeps its connections."""
    limits = httpx2.Limits(max_connections=100)
    return httpx2.AsyncClient(base_url=address, timeout=300, trust_env=False, limits=limits)


@contextmanager
def serving(taskset: Path, scratch: Path, clients: int) -> Iterator[tuple[str, int]]:
    """``patchgym serve`` in a process of its own: its address and its number."""
    arguments = ["serve", taskset, "--port", 0, "--out", scratch / "run", "--most-sessions", 2 * clients]
    command = [sys.executable, "-m", "patchgym", *map(str, [*arguments, "--per-client", 2 * clients])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.terminate()
            process.wait(60)


def _pss(process: int) -> int | None:
    """Bytes of a process and of all that descend from it, shared ones in proportion."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(") ")[2].split()[1])
        except OSError:
            continue
    family = {process}
    while more := {number for number, parent in parents.items() if parent in family} - family:
        family |= more
    total = 0
    for number in family:
        try:
            text = Path(f"/proc/{number}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))
    return total or None


def make_set(folder: Path) -> Path:
    """A task set of one tiny task."""
    objects = ObjectStore(folder / "objects")
    task = make_task(objects)
    (folder / "set").mkdir()
    write_task_set(
        folder / "set", TaskSetManifest(name="calc", recipe={}, funnel={}, created_at=_THEN), [task], objects
    )
    return folder / "set"


def make_task(objects: ObjectStore) -> Task:
    """The task: ``clamp`` answers the wrong bound."""
    files = {"calc.py": _BUGGY, "tests/test_calc.py": _TEST}
    tree = objects.write_tree({path: Entry(0o100644, objects.put(text.encode())) for path, text in files.items()})
    solved = objects.update_tree(tree, {"calc.py": Entry(0o100644, objects.put(_FIXED.encode()))})
    gold = diff_trees(objects, tree, solved)
    lock = (resources.files("patchgym.tasks.sources") / "locks" / "pytest.txt").read_text(encoding="utf-8")
    test = {"tests/test_calc.py": objects.put(_TEST.encode())}
    return Task(
        id="calc-1",
        source=Source(kind="synthetic", repo="calc"),
        instruction="clamp(10, 0, 9) should be 9.",
        workspace=tree,
        environment=Environment(python=f"{sys.version_info.major}.{sys.version_info.minor}", lock=lock),
        tests=Tests(
            fail_to_pass=("tests/test_calc.py::test_it",),
            pass_to_pass=(),
            hidden=(),
            visible_files=test,
            hidden_files=test,
        ),
        gold_patch=gold,
        key_files=("calc.py",),
        scope=patch_scope(gold),
        limits=Limits(turns=8, command_seconds=20),
        split="train",
    )


def _manifest() -> RunManifest:
    return RunManifest(id="bench", command="serve", config={}, versions={}, task_hashes={}, seed=0, created_at=_THEN)


if __name__ == "__main__":
    main()
