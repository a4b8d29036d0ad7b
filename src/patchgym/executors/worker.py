"""The far side: one worker process, which does items of one kind of work, several at once.

Bytes come in and bytes go out, so that whatever carries them has to understand nothing. Errors of ours are answers;
anything else is a bug and ends the run as it would at home.
"""

import asyncio
import os
import platform
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from patchgym.content.packs import closure, pack
from patchgym.errors import DataError, PatchgymError, PrerequisiteError
from patchgym.executors.node import NodeCache
from patchgym.executors.wire import answer, answer_of_error, check_size, decode_spec
from patchgym.executors.work import Doer, Place
from patchgym.records import Environment, Record
from patchgym.sandbox import sandbox_kind
from patchgym.sandbox.environments import build_environment


class NodeReport(Record):
    """What a worker says of its node before any work is sent there: the host's name, its process, versions, and why it
    can make no sandboxes (empty where it can)."""

    host: str
    pid: int
    python: str
    patchgym: str
    trouble: str = ""


class Worker:
    """One worker. ``spec`` is an encoded ``WorkSpec``."""

    def __init__(
        self, spec: bytes, cache: Path | None = None, build: Callable[[Environment], Path] = build_environment
    ) -> None:
        """``cache`` is where the node keeps things (default: patchgym's cache); ``build`` gives the directory of an
        environment.

        Raises:
            DataError: this installation does not know the work.
            StorageError: the cache cannot be written.
        """
        self._spec = decode_spec(spec)
        self._node = NodeCache(cache)
        self._build = partial(self._node.build, build=build)
        self._room = self._node.room()
        self._objects = self._room.objects
        self._factory = sandbox_kind(self._spec.sandbox)(self._objects)
        self._opening = asyncio.Lock()
        self._doer: Doer[Any, Any] | None = None
        self._doing: set[asyncio.Task[Any]] = set()
        self._near: set[str] = set()  # what the near side has, for it named it

    async def report(self) -> bytes:
        """A ``NodeReport``: whether sandboxes can be made here is found out by making one."""
        trouble = ""
        try:
            await asyncio.to_thread(sandbox_kind(self._spec.sandbox).check)
        except PrerequisiteError as error:
            trouble = str(error)
        told = NodeReport(
            host=socket.gethostname(),
            pid=os.getpid(),
            python=platform.python_version(),
            patchgym=version("patchgym"),
            trouble=trouble,
        )
        return told.model_dump_json().encode()

    async def clock(self) -> bytes:
        """Seconds since the epoch by this node's clock, as decimal digits."""
        return repr(time.time()).encode()

    async def missing(self, ids: bytes) -> bytes:
        """Those of the ids (a line each) that this node lacks."""
        wanted = ids.decode().splitlines()
        return "\n".join(await asyncio.to_thread(self._node.missing, wanted)).encode()

    async def receive(self, data: bytes) -> bytes:
        """Store a pack of objects; an answer without a body."""
        try:
            await asyncio.to_thread(self._node.receive, data)
        except PatchgymError as error:
            return answer_of_error(error)
        return answer(b"", b"")

    async def do(self, data: bytes) -> bytes:
        """Do an item; the answer holds the result and the objects that it names and the near side lacks. Where an
        object that the item needs is not here, the head says ``lacking`` and nothing was done."""
        task = asyncio.current_task()
        assert task is not None
        self._doing.add(task)
        try:
            return await self._do(data)
        except PatchgymError as error:
            return answer_of_error(error)
        finally:
            self._doing.discard(task)

    async def _do(self, data: bytes) -> bytes:
        item = self._item(data)
        needs = self._spec.needs(item)
        if any(one not in self._objects for one in needs):
            return answer(b"", b"", lacking=True)
        doer = await self._opened()
        result = await doer.do(item)
        assert isinstance(result, Record)
        return await asyncio.to_thread(self._answer, result, needs, self._spec.name(item))

    def _item(self, data: bytes) -> Record:
        try:
            return self._spec.ITEM.model_validate_json(data)
        except ValidationError as error:
            raise DataError(
                "This node cannot read the work that it was sent",
                why=str(error)[:400],
                mend="Install the same version of patchgym on every node.",
            ) from error

    async def _opened(self) -> Doer[Any, Any]:
        async with self._opening:
            if self._doer is None:
                self._doer = await self._spec.open(Place(self._objects, self._factory, self._build))
            return self._doer

    def _answer(self, result: Record, needs: frozenset[str], name: str) -> bytes:
        near = self._near
        near.update(closure(self._objects, needs, near.__contains__))
        ids = closure(self._objects, self._spec.leaves(result), near.__contains__)
        check_size(sum(len(self._objects.load(one).as_raw_string()) for one in ids), f"What {name} left")
        objects = b"".join(pack(self._objects, ids, sys.maxsize))
        body = result.model_dump_json().encode()
        check_size(len(body) + len(objects), f"The result of {name}")
        return answer(body, objects)

    async def close(self) -> bytes:
        """End all that runs here, and remove what this worker wrote."""
        doing = list(self._doing)
        for task in doing:
            task.cancel()
        await asyncio.gather(*doing, return_exceptions=True)
        if self._doer is not None:
            await self._doer.close()
        self._factory.close()
        self._room.close()
        return b""
