"""A real Ray cluster on this machine: several nodes, each with a CPU of its own, and what tests need beside it."""

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from patchgym.content import ObjectStore
from patchgym.records import Task
from tests.workshop import calc_task, need_namespaces

_STORE_BYTES = 80 * 1024**2
_QUICK = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000, "health_check_failure_threshold": 5}


def need_ray() -> None:
    """Skip, loudly, where Ray is not installed."""
    pytest.importorskip("ray", reason="LOUD SKIP: Ray is not installed: pip install 'patchgym[ray]'")


@contextmanager
def cluster(nodes: int, cache: Path, **head: Any) -> Iterator[Any]:
    """A cluster of so many nodes of one CPU each; their workers keep things under ``cache``. The head has none."""
    need_ray()
    need_namespaces()
    before = dict(os.environ)
    os.environ.update(
        PATCHGYM_CACHE=str(cache),
        RAY_USAGE_STATS_ENABLED="0",
        PYTHONPATH=os.pathsep.join(part for part in (str(Path.cwd()), *sys.path) if part),
    )
    from ray.cluster_utils import Cluster

    made = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0,
            "object_store_memory": _STORE_BYTES,
            "include_dashboard": False,
            "_system_config": _QUICK,
            **head,
        },
    )
    os.environ["RAY_ADDRESS"] = made.address
    try:
        for _ in range(nodes):
            add_node(made)
        yield made
    finally:
        made.shutdown()
        os.environ.clear()
        os.environ.update(before)


def add_node(made: Any, **more: Any) -> Any:
    """One more node of a CPU."""
    return made.add_node(num_cpus=1, object_store_memory=_STORE_BYTES, memory=4 * 1024**3, **more)


def hermetic(objects: ObjectStore, cache: Path) -> Task:
    """The tiny task, with this interpreter's environment in the cache in the place of the one that would be built."""
    task = calc_task(objects)
    key = task.environment.model_dump_json(include={"python", "lock", "distribution"})
    place = cache / "environments" / hashlib.sha256(key.encode()).hexdigest()[:24]
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists():
        place.symlink_to(sys.prefix)
    return task


def wait_for(holds: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether something comes to hold in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.2)
    return holds()
