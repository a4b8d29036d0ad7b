"""Small kinds of work, to see how a crew treats its items."""

import asyncio
import os
import signal
from pathlib import Path
from typing import ClassVar

from patchgym.content import Entry, ObjectStore
from patchgym.errors import BuildFailure, EnvironmentBuildError
from patchgym.executors import Need, Place, WorkSpec
from patchgym.records import Record


class Ask(Record):
    """``do`` is what is asked: ``tree`` writes ``text`` into the tree that is given; ``pid``; ``die`` ends the worker,
    ``die_once`` where ``text`` is no file yet; ``fail`` is an error of ours; ``bug`` is none."""

    name: str
    do: str = "pid"
    tree: str | None = None
    text: str = ""
    seconds: float = 0.0


class Answer(Record):
    name: str
    pid: int
    tree: str | None = None


class ToySpec(WorkSpec[Ask, Answer]):
    ITEM: ClassVar[type[Record]] = Ask
    RESULT: ClassVar[type[Record]] = Answer

    slots: int = 1
    cpus: float = 1.0

    @property
    def need(self) -> Need:
        return Need(cpus=self.cpus, memory_bytes=0, slots=self.slots)

    async def open(self, place: Place) -> "Toy":
        return Toy(place.objects)

    def name(self, item: Ask) -> str:
        return item.name

    def needs(self, item: Ask) -> frozenset[str]:
        return frozenset([item.tree] if item.tree is not None else [])

    def leaves(self, result: Answer) -> frozenset[str]:
        return frozenset([result.tree] if result.tree is not None else [])


class Toy:
    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    async def do(self, item: Ask) -> Answer:
        made = None
        await asyncio.sleep(item.seconds)
        match item.do:
            case "tree":
                assert item.tree is not None
                entry = Entry(0o100644, self._objects.put(item.text.encode()))
                made = self._objects.update_tree(item.tree, {f"made/{item.name}": entry})
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "die_once" if not Path(item.text).exists():
                Path(item.text).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            case "fail":
                raise EnvironmentBuildError("No suite runs", why="Pip said so.", kind=BuildFailure.COMPILER)
            case "bug":
                raise ZeroDivisionError
        return Answer(name=item.name, pid=os.getpid(), tree=made)

    async def close(self) -> None:
        pass
