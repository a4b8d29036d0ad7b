"""Proving tasks: ours, the same work done naively, and in one Docker container a run.

Prints one JSON document: seconds a task and ratios, all in one run on the same tasks. Ours is ``patchgym validate``:
three runs each of the workspace, of nothing done and of the gold patch, of the tests that can notice the change, and
the whole suite once at the end; what it finds out of a healthy suite is part of its time. Naive is the whole suite in
each of the nine runs, in the same sandboxes; Docker is the same in ``docker run --rm`` on a copy of the files.

    python benchmarks/validate.py SET [--tasks 24] [--docker-host unix:///run/docker.sock | --start-dockerd]

``SET`` is a task set (``patchgym tasks build --out SET``).
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
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from patchgym.content import ObjectStore
from patchgym.grading import graded_tree
from patchgym.records import Task
from patchgym.sandbox import NamespaceSandboxes
from patchgym.sandbox.docker.own import own_engine
from patchgym.sandbox.environments import build_environment
from patchgym.tasks import TaskSet
from patchgym.tasks.proof.bench import Bench, together
from patchgym.tasks.proof.prove import prove_task
from sandbox import IMAGE, docker, import_image

RUNS = 3


def trees_of(task: Task, objects: ObjectStore) -> list[str]:
    """What is run three times each: the workspace, nothing done, the gold patch."""
    return [task.workspace, *(graded_tree(objects, task, patch)[0] for patch in ("", task.gold_patch))]


async def ours(tasks: Sequence[Task], objects: ObjectStore, cores: int) -> int:
    """Prove every task; how many proved."""
    factory = NamespaceSandboxes(objects)
    bench = Bench(factory, objects, build_environment, cores)
    proved = await together(prove_task(task, bench, RUNS) for task in tasks)
    factory.close()
    return sum(task.validation is not None and task.validation.proved for task in proved)


async def naive(tasks: Sequence[Task], objects: ObjectStore, cores: int) -> int:
    """Run every task's whole suite nine times; how many runs came to their end."""
    factory = NamespaceSandboxes(objects)
    bench = Bench(factory, objects, build_environment, cores)
    runs = await together(
        bench.run(tree, task.environment, timeout_s=300.0)
        for task in tasks
        for tree in trees_of(task, objects)
        for _ in range(RUNS)
    )
    factory.close()
    return sum(run.complete for run in runs)


async def in_docker(tasks: Sequence[Task], objects: ObjectStore, cores: int, host: str, folder: Path) -> int:
    """As ``naive``, each run in a container of its own; how many ended with pytest's verdict."""
    slots = asyncio.Semaphore(cores)
    prefixes = {Path("/usr"), Path(os.path.realpath(sys.executable)).parents[1]}
    prefixes |= {path for name in ("lib", "lib64", "bin") if (path := Path("/", name)).is_dir()}

    async def one(task: Task, tree: str, number: int) -> bool:
        async with slots:
            place = folder / f"{task.id}-{tree[:8]}-{number}"
            await asyncio.to_thread(objects.checkout, tree, place)
            environment = build_environment(task.environment)
            roots = ":".join(f"/workspace/{path}".rstrip("/") for path in task.environment.pythonpath)
            binds = [part for path in (*prefixes, environment) for part in ("-v", f"{path}:{path}:ro")]
            command = [*docker(host), "run", "--rm", "--network", "none", *binds, "-v", f"{place}:/workspace"]
            command += ["-w", "/workspace", "-e", f"PYTHONPATH={roots}", "-e", "HOME=/tmp", IMAGE]
            command += [str(environment / "bin" / "python"), "-s", "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
            command += ["-o", "addopts=", "--tb=short", "--continue-on-collection-errors"]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, stdin=subprocess.DEVNULL)
            return done.returncode in (0, 1, 2)

    ended = await together(
        one(task, tree, number) for task in tasks for tree in trees_of(task, objects) for number in range(RUNS)
    )
    return sum(ended)


def took(work: Coroutine[Any, Any, int], expected: int) -> float:
    """Seconds that work takes, all of which must succeed."""
    began = time.perf_counter()
    done = asyncio.run(work)
    assert done == expected, f"{done} of {expected}"
    return time.perf_counter() - began


def spread(tasks: Sequence[Task], count: int) -> list[Task]:
    """So many of the tasks, spread evenly over all of them; 0: all."""
    wanted = min(count, len(tasks)) or len(tasks)
    return [tasks[number * len(tasks) // wanted] for number in range(wanted)]


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("taskset", type=Path)
    parser.add_argument("--docker-host", help="an engine that answers, such as unix:///run/docker.sock")
    parser.add_argument("--start-dockerd", action="store_true", help="start and stop an engine for this")
    parser.add_argument("--tasks", type=int, default=24, help="on how many tasks, spread evenly over the set (0: all)")
    parser.add_argument("--docker-tasks", type=int, default=3, help="on how many of these in containers")
    options = parser.parse_args()
    found = TaskSet.load(options.taskset)
    tasks = spread(found.tasks, options.tasks)
    cores = len(os.sched_getaffinity(0))
    seconds: dict[str, float] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        objects = ObjectStore(folder / "objects")
        for task in tasks:
            found.objects.copy_tree(task.workspace, objects)
            for blob in (*task.tests.visible_files.values(), *task.tests.hidden_files.values()):
                objects.put(found.objects.get(blob))
            build_environment(task.environment)
        few = spread(tasks, options.docker_tasks)

        every = len(tasks)
        seconds["ours"] = took(ours(tasks, objects, cores), every) / every
        seconds["naive"] = took(naive(tasks, objects, cores), 9 * every) / every
        host = stack.enter_context(own_engine()) if options.start_dockerd else options.docker_host
        if host is not None:
            import_image(host)
            seconds["docker"] = took(in_docker(few, objects, cores, host, folder), 9 * len(few)) / len(few)
            seconds["ours_on_the_tasks_of_docker"] = took(ours(few, objects, cores), len(few)) / len(few)
    docker_ratio = seconds["docker"] / seconds["ours_on_the_tasks_of_docker"] if "docker" in seconds else None
    print(
        json.dumps(
            {
                "tasks": len(tasks),
                "of": len(found.tasks),
                "seconds_a_task": {name: round(took, 2) for name, took in seconds.items()},
                "naive_over_ours": round(seconds["naive"] / seconds["ours"], 2),
                "docker_over_ours": round(docker_ratio, 2) if docker_ratio is not None else None,
                "proved_an_hour": round(3600 / seconds["ours"]),
                "machine": {
                    "cores": os.cpu_count(),
                    "load": [round(load, 2) for load in os.getloadavg()],
                    "kernel": platform.release(),
                    "python": platform.python_version(),
                },
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
