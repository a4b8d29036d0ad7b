"""A Ray cluster as a fleet: the only module that knows Ray.

What goes through Ray are bytes, which it carries as they are. A worker is an actor of ``worker.Worker``, and Ray finds
it a node; it starts none again by itself, because who does lost work again must know that it was lost.
"""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Collection
from contextlib import suppress
from typing import Any, Self
from urllib.parse import urlsplit

from patchgym.errors import PatchgymError, PrerequisiteError, UsageError, WorkLostError
from patchgym.executors.fleet import UNPLACED, Hand, Node, WorkerLost
from patchgym.executors.work import Need
from patchgym.executors.worker import Worker

CONNECT_S = 60.0
_KNOCK_S = 5.0
_END_S = 20.0
_SPARE_CALLS = 8
_NODE_LABEL = "ray.io/node-id"  # every node has it
_EXTRA = "pip install 'patchgym[ray]'"


class RayCluster:
    """A connection to a cluster (a ``Fleet``): one in a process at a time. Close it, or use it as a context manager."""

    def __init__(self, address: str, ray: Any) -> None:
        self.address = address
        self._ray = ray

    @classmethod
    def connect(cls, address: str, *, timeout_s: float = CONNECT_S) -> Self:
        """Join the cluster at ``address``: ``ray`` for the one that this machine belongs to (or ``$RAY_ADDRESS``
        names), ``ray://HOST:PORT`` for one that is reached through its Ray Client server.

        Raises:
            UsageError: it is no such address.
            PrerequisiteError: Ray is not installed, no cluster answers there in time, or its version of Ray or Python
                is another one.
        """
        target = _target(address)
        try:
            import ray
        except ImportError as error:
            raise PrerequisiteError("Ray is not installed", why=str(error), mend=f"Run: {_EXTRA}") from error
        if ray.is_initialized():
            raise UsageError("This process has joined a Ray cluster already", mend="Leave it first: ray.shutdown().")
        if target != "auto":
            _knock(target)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        logging.getLogger("ray").setLevel(logging.CRITICAL)  # what matters comes back as an exception
        raised: list[Exception] = []

        def join() -> None:  # in a thread: it cannot be told to give up, and must not touch this process's signals
            try:
                ray.init(target, log_to_driver=False, logging_level=logging.CRITICAL, namespace="patchgym")
            except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
                raised.append(error)

        joining = threading.Thread(target=join, name="join-ray", daemon=True)
        joining.start()
        joining.join(timeout_s)
        if raised:
            raise connect_error(raised[0], address) from raised[0]
        if joining.is_alive() or not ray.is_initialized():
            raise _silent(address, f"Nothing like a Ray cluster answered within {timeout_s:g} s.")
        return cls(address, ray)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the cluster; workers that are still there end. May be called twice."""
        if self._ray.is_initialized():
            self._ray.shutdown()

    async def nodes(self) -> list[Node]:
        """See ``Fleet.nodes``."""
        return [_node(told) for told in await asyncio.to_thread(self._ray.nodes)]

    def hire(self, need: Need, spec: bytes, shunned: Collection[str]) -> "RayHand":
        """See ``Fleet.hire``."""
        actor = (
            self._ray.remote(_Placed)
            .options(
                num_cpus=need.cpus,
                num_gpus=need.gpus,
                memory=need.memory_bytes,
                max_restarts=0,
                max_task_retries=0,
                max_concurrency=need.slots + _SPARE_CALLS,
                scheduling_strategy="SPREAD",
                label_selector={_NODE_LABEL: f"!in({','.join(sorted(shunned))})"} if shunned else None,
            )
            .remote(spec)
        )
        return RayHand(self._ray, actor)

    def slots(self, need: Need) -> int:
        """How many items the nodes that are there now have room for at once; at least one."""
        rooms = [node.room(need) for told in self._ray.nodes() if (node := _node(told)).alive]
        return max(1, sum(rooms) * need.slots)

    def gpus(self) -> float:
        """How many GPUs the cluster has now."""
        return float(self._ray.cluster_resources().get("GPU", 0.0))


class _Placed(Worker):
    """A worker that knows where Ray put it."""

    async def where(self) -> bytes:
        """The id of its node."""
        import ray

        return str(ray.get_runtime_context().get_node_id()).encode()


class RayHand(Hand):
    """An actor."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor
        self._node = UNPLACED

    async def place(self) -> str:
        """See ``Hand.place``."""
        self._node = (await self.ask("where")).decode()
        return self._node

    async def ask(self, method: str, *arguments: bytes) -> bytes:
        """See ``Hand.ask``. An exception of the far side that is none of ours is a bug there, and is raised here.

        Raises:
            WorkLostError: Ray's own store has no room for the message.
        """
        errors = self._ray.exceptions
        try:
            found = await asyncio.wrap_future(getattr(self._actor, method).remote(*arguments).future())
        except errors.RayTaskError:
            raise
        except (errors.ObjectStoreFullError, errors.OutOfDiskError) as error:
            size = sum(map(len, arguments)) / 1024**2
            raise WorkLostError(
                f"Ray's object store has no room for a message of {size:,.1f} MB",
                why=str(error)[:400],
                mend="Start Ray with a larger --object-store-memory.",
            ) from error
        except (errors.RayError, ConnectionError) as error:
            raise WorkerLost(self._node, _short(error)) from error
        if not isinstance(found, bytes):
            raise WorkerLost(self._node, f"A worker answered with {type(found).__name__} in place of bytes.")
        return found

    async def end(self) -> None:
        """See ``Hand.end``."""
        with suppress(WorkerLost, TimeoutError, self._ray.exceptions.RayTaskError):
            async with asyncio.timeout(_END_S):
                await self.ask("close")
        self.kill()

    def kill(self) -> None:
        """See ``Hand.kill``: the process ends with SIGKILL, and its sandboxes with it."""
        with suppress(self._ray.exceptions.RayError, ConnectionError, ValueError):
            self._ray.kill(self._actor, no_restart=True)


def connect_error(error: Exception, address: str) -> PatchgymError:
    """What Ray says against joining a cluster, as ours."""
    said = _short(error)
    if "ersion mismatch" in said or "versions differ" in said:
        return PrerequisiteError(
            f"The cluster at {address} has another version of Ray or Python",
            why=said,
            mend="Use the Python and the Ray of the cluster here: both must be the same everywhere.",
        )
    return _silent(address, said)


def _silent(address: str, why: str) -> PrerequisiteError:
    start = (
        "Start one: ray start --head" if address == "ray" else "Check that it runs and that the port is its client's"
    )
    return PrerequisiteError(f"No Ray cluster answers at {address}", why=why, mend=f"{start}.")


def _target(address: str) -> str:
    if address == "ray":
        return "auto"
    parts = urlsplit(address)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme != "ray" or not parts.hostname or port is None:
        raise UsageError(f"There is no executor {address!r}", mend="Write local, ray, or ray://HOST:PORT.")
    return f"ray://{parts.hostname}:{port}"


def _knock(target: str) -> None:
    """Whether anything listens there; Ray itself would try for much longer.

    Raises:
        PrerequisiteError: nothing does.
    """
    parts = urlsplit(target)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=_KNOCK_S).close()
    except OSError as error:
        raise _silent(target, f"{error}.") from error


def _node(told: dict[str, Any]) -> Node:
    has = told.get("Resources", {})
    name = f"{told.get('NodeName') or told.get('NodeManagerHostname')} ({told['NodeID'][:8]})"
    return Node(
        told["NodeID"], name, has.get("CPU", 0.0), has.get("memory", 0.0), has.get("GPU", 0.0), alive=told["Alive"]
    )


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:600] or type(error).__name__
