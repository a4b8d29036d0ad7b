"""What a cluster costs: the same work here and on Ray nodes of this machine.

Prints one JSON document. `overhead`: rollouts of two seconds and more, one at a time, here and on one worker, in turns:
the median seconds of each and their ratio. Claim: at most 1.10. `efficiency`: how much faster several workers are than
one, over how much faster they could be, for rollouts that wait most of their time. `scheduling`: items a second of
`--noop` rollouts that do nothing at all. `on_paper`: what 1,000 and 10,000 sandboxes at once need, computed from what
was measured here, and which of the limits in `assumed` is met first.

    python benchmarks/cluster.py TASKSET [--repeats 5] [--workers 1 2 4] [--noop 10000]

The tests of TASKSET's first task must be quick. It needs `pip install 'patchgym[ray]'`. (It is not called ray.py,
because Python would then take it for Ray.)
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from patchgym.content import ObjectStore
from patchgym.errors import SandboxError
from patchgym.executors import CrewSettings, LocalExecutor, Place, WorkSpec
from patchgym.executors.cluster import RayCluster, RayHand
from patchgym.executors.crew import Crew
from patchgym.executors.work import Need
from patchgym.records import PolicyRef, Record, Trajectory
from patchgym.reward import RewardSettings
from patchgym.rollout import PolicyOptions, RolloutSettings
from patchgym.rollout.attempts import lost_attempt
from patchgym.rollout.collect import Attempt
from patchgym.rollout.sent import AttemptSpec, attempt_spec
from patchgym.sandbox import NamespaceSandboxes
from patchgym.sandbox.environments import build_environment
from patchgym.store import RunDirectory
from patchgym.store.copying import copy_task
from patchgym.tasks import TaskSet

_STORE_BYTES = 100 * 1024**2
ASSUMED = {
    "rollout_seconds": 300.0,
    "node_cores": 64,
    "node_memory_gb": 256.0,
    "node_object_store_gb": 16.0,
    "driver_cores": 1.0,
    "driver_network_mb_s": 1000.0,
    "driver_disk_mb_s": 200.0,
    "run_hours": 24.0,
    "driver_disk_gb": 2000.0,
}
"""What `on_paper` takes for granted: how long a rollout with a model takes, what a node and the driver's machine have
(10 Gbit/s of network at 80%). One core is what one Python process can use."""


class Nothing(WorkSpec[Attempt, Trajectory]):
    """Rollouts that do nothing: what is left is the way there and back."""

    ITEM: ClassVar[type[Record]] = Attempt
    RESULT: ClassVar[type[Record]] = Trajectory

    async def open(self, place: Place) -> "_NothingDone":
        """See ``WorkSpec.open``."""
        return _NothingDone()

    @property
    def need(self) -> Need:
        """Many at once."""
        return Need(slots=16)

    def name(self, item: Attempt) -> str:
        """Which one."""
        return f"{item.task.id}.{item.sample}"

    def needs(self, item: Attempt) -> frozenset[str]:
        """What a rollout of it would need."""
        return frozenset({item.task.workspace, *item.task.blobs})


class _NothingDone:
    async def do(self, item: Attempt) -> Trajectory:
        ref = PolicyRef(spec="noop", version=None)
        return lost_attempt("rollout", item.task, item.sample, ref, "none", SandboxError("Nothing was done"))

    async def close(self) -> None:
        """Nothing is held."""


class Weighed(RayCluster):
    """A cluster that weighs what goes to it and comes from it."""

    sent = received = 0

    def hire(self, need: Need, spec: bytes, shunned: Collection[str]) -> RayHand:
        """See ``Fleet.hire``."""
        hand = super().hire(need, spec, shunned)
        ask = hand.ask

        async def weigh(method: str, *arguments: bytes) -> bytes:
            found = await ask(method, *arguments)
            self.sent += sum(map(len, arguments))
            self.received += len(found)
            return found

        hand.ask = weigh  # type: ignore[method-assign]
        return hand


@contextmanager
def nodes(count: int) -> Iterator[None]:
    """A cluster of nodes with one CPU each on this machine."""
    from ray.cluster_utils import Cluster

    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    head = {"num_cpus": 0, "object_store_memory": _STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        for _ in range(count):
            cluster.add_node(num_cpus=1, object_store_memory=_STORE_BYTES, memory=4 * 1024**3)
        yield
    finally:
        cluster.shutdown()


def processes_below(root: int) -> list[int]:
    """A process and all that it started."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, left = [], [root]
    while left:
        found.append(left.pop())
        left += parents.get(found[-1], [])
    return found


def memory_of(pids: list[int]) -> int:
    """Bytes that belong to these processes alone or in proportion (PSS)."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))
    return total


def cpu_of(pid: int) -> float:
    """CPU seconds of a process and of what it waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


class Measured:
    """One set of measurements."""

    def __init__(self, taskset: TaskSet, folder: Path, seconds: float) -> None:
        self.task = taskset.tasks[0]
        self.folder = folder
        self.objects = ObjectStore(folder / "near")
        copy_task(self.task, taskset.objects, self.objects)
        script = folder / "script.json"
        command = {"tool": "run_command", "arguments": {"command": f"sleep {seconds}"}}
        script.write_text(json.dumps({"*": [command]}))
        self.spec: AttemptSpec = attempt_spec(
            "rollout",
            f"scripted:{script}",
            PolicyOptions(),
            RolloutSettings(),
            RewardSettings(),
            0,
            sandbox="namespace",
        )

    async def timed(self, do: Callable[[Attempt], Awaitable[Trajectory]], sample: int) -> float:
        """Seconds of one rollout, which must be whole."""
        clock = time.monotonic()
        made = await do(Attempt(task=self.task, sample=sample))
        assert made.status == "completed", made.faults
        return time.monotonic() - clock

    async def overhead(self, fleet: Weighed, repeats: int) -> dict[str, Any]:
        """One rollout after the other, in turns here and there."""
        factory = NamespaceSandboxes(self.objects)
        doer = await self.spec.open(Place(self.objects, factory, build_environment))
        here = LocalExecutor[Attempt, Trajectory](doer.do, 1)
        local, there = list[float](), list[float]()
        settings = CrewSettings(slots=1)
        async with Crew(fleet, self.spec, self.objects, settings, concurrency=1) as crew:
            for executor in (here, crew):  # checkouts, the first worker
                await self.timed(executor.do, 0)
            fleet.sent = fleet.received = 0
            cpu = cpu_of_workers(crew)
            for number in range(1, repeats + 1):
                local.append(await self.timed(here.do, number))
                there.append(await self.timed(crew.do, number))
            cpu_each = (cpu_of_workers(crew) - cpu) / repeats
            made = await crew.do(Attempt(task=self.task, sample=0))
            memory = await self._memory(crew)
        factory.close()
        ratio = statistics.median(there) / statistics.median(local)
        return {
            "local_s": round(statistics.median(local), 3),
            "ray_s": round(statistics.median(there), 3),
            "ratio": round(ratio, 3),
            "each": [[round(a, 3), round(b, 3)] for a, b in zip(local, there, strict=True)],
            "sent_bytes": fleet.sent // (repeats + 1),
            "received_bytes": fleet.received // (repeats + 1),
            "worker_cpu_s": round(cpu_each, 3),
            "disk_bytes": self._on_disk(made),
            **memory,
        }

    async def _memory(self, crew: Crew[Attempt, Trajectory]) -> dict[str, int]:
        """Of a worker at rest, and what one sandbox adds while a command waits in it."""
        pid = worker_pids(crew)[0]
        at_rest = memory_of(processes_below(pid))
        task = asyncio.create_task(crew.do(Attempt(task=self.task, sample=1)))
        most = at_rest
        while not task.done():
            await asyncio.sleep(0.1)
            most = max(most, memory_of(processes_below(pid)))
        return {"worker_bytes": at_rest, "sandbox_bytes": most - at_rest}

    def _on_disk(self, made: Trajectory) -> int:
        """Bytes that one more trajectory takes in a run directory."""
        from patchgym.cli.workshop import make_manifest

        run = RunDirectory.open_for_writing(self.folder / "run", make_manifest("benchmark", {}, [self.task], 0))
        before = sum(file.stat().st_size for file in run.path.rglob("*") if file.is_file())
        run.append(made)
        run.close()
        return sum(file.stat().st_size for file in run.path.rglob("*") if file.is_file()) - before

    async def rate(self, fleet: Weighed, workers: int, each: int) -> float:
        """Rollouts a second by so many workers of one slot, once all are there."""
        settings = CrewSettings(slots=1)
        async with Crew(fleet, self.spec, self.objects, settings, concurrency=workers) as crew:
            await asyncio.gather(*(self.timed(crew.do, at) for at in range(workers)))
            clock = time.monotonic()
            await asyncio.gather(*(self.timed(crew.do, at) for at in range(workers * each)))
            return workers * each / (time.monotonic() - clock)

    async def scheduling(self, fleet: Weighed, items: int) -> dict[str, float]:
        """Items that do nothing."""
        async with Crew(fleet, Nothing(), self.objects) as crew:
            await crew.do(Attempt(task=self.task, sample=0))
            clock, cpu = time.monotonic(), time.process_time()
            await asyncio.gather(*(crew.do(Attempt(task=self.task, sample=at)) for at in range(items)))
            took = time.monotonic() - clock
            return {
                "items": items,
                "a_second": round(items / took, 1),
                "driver_cpu_s_each": round((time.process_time() - cpu) / items, 6),
            }


def worker_pids(crew: Crew[Attempt, Trajectory]) -> list[int]:
    """The processes of a crew's first workers."""
    return [worker.node.report.pid for worker in crew._workers if worker.node.report is not None]


def cpu_of_workers(crew: Crew[Attempt, Trajectory]) -> float:
    """CPU seconds that a crew's workers used so far, with their ended commands."""
    return sum(cpu_of(pid) for first in worker_pids(crew) for pid in processes_below(first))


def on_paper(sandboxes: int, overhead: dict[str, Any], scheduling: dict[str, float]) -> dict[str, Any]:
    """What so many sandboxes at once need, and the share of each limit that this is."""
    a = ASSUMED
    rate = sandboxes / a["rollout_seconds"]
    cores = rate * overhead["worker_cpu_s"]
    memory = sandboxes * (overhead["sandbox_bytes"] + overhead["worker_bytes"] / 4) / 1024**3
    message = overhead["sent_bytes"] + overhead["received_bytes"]
    nodes_wanted = max(1, -(-cores // (0.8 * a["node_cores"])), -(-memory // (0.8 * a["node_memory_gb"])))
    network = rate * message / 1e6
    disk = rate * overhead["disk_bytes"] / 1e6
    store = sandboxes / nodes_wanted * message / 1024**3
    shares = {
        "driver CPU": rate * scheduling["driver_cpu_s_each"] / a["driver_cores"],
        "scheduling": rate / scheduling["a_second"],
        "driver network": network / a["driver_network_mb_s"],
        "driver disk, speed": disk / a["driver_disk_mb_s"],
        "driver disk, room": disk * 3600 * a["run_hours"] / 1000 / a["driver_disk_gb"],
        "object store of a node": store / a["node_object_store_gb"],
    }
    first = max(shares, key=lambda name: shares[name])
    by_memory = memory / a["node_memory_gb"] > cores / a["node_cores"]
    return {
        "sandboxes": sandboxes,
        "rollouts_a_second": round(rate, 2),
        "node_cores": round(cores, 1),
        "node_memory_gb": round(memory, 1),
        "nodes": int(nodes_wanted),
        "nodes_are_for": "memory" if by_memory else "CPU",
        "driver_network_mb_s": round(network, 3),
        "driver_disk_mb_s": round(disk, 3),
        "object_store_gb_a_node": round(store, 4),
        "shares_of_the_limits": {name: round(share, 4) for name, share in shares.items()},
        "first_bottleneck": first,
        "sandboxes_at_that_limit": int(sandboxes / shares[first]),
    }


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("taskset", type=Path)
    parser.add_argument("--repeats", type=int, default=5, help="rollouts of each kind for the overhead")
    parser.add_argument("--seconds", type=float, default=2.0, help="what a rollout waits at least")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--each", type=int, default=4, help="rollouts of each worker for the efficiency")
    parser.add_argument("--noop", type=int, default=10_000, help="rollouts that do nothing")
    asked = parser.parse_args()
    taskset = TaskSet.load(asked.taskset)
    with tempfile.TemporaryDirectory(prefix="patchgym-cluster-") as name, nodes(max(asked.workers)):
        measured = Measured(taskset, Path(name), asked.seconds)
        with Weighed.connect("ray") as fleet:
            overhead = asyncio.run(measured.overhead(fleet, asked.repeats))
            rates = {count: asyncio.run(measured.rate(fleet, count, asked.each)) for count in asked.workers}
            scheduling = asyncio.run(measured.scheduling(fleet, asked.noop))
    one = rates[min(rates)] / min(rates)
    document = {
        "cores": len(os.sched_getaffinity(0)),
        "task": measured.task.id,
        "overhead": overhead,
        "efficiency": {
            str(count): {"rollouts_a_second": round(rate, 3), "share": round(rate / one / count, 3)}
            for count, rate in rates.items()
        },
        "scheduling": scheduling,
        "assumed": ASSUMED,
        "on_paper": [on_paper(count, overhead, scheduling) for count in (1_000, 10_000)],
    }
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    import cluster  # so that workers find its classes under this name

    cluster.main()
