"""What can be done elsewhere: work that is a function of records and of objects that they name."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

from patchgym.content import ObjectStore
from patchgym.records import Environment, Record
from patchgym.sandbox import SandboxFactory

Item = TypeVar("Item", bound=Record)
Result = TypeVar("Result", bound=Record)
_Item = TypeVar("_Item", bound=Record, contravariant=True)
_Result = TypeVar("_Result", bound=Record, covariant=True)


@dataclass(frozen=True)
class Place:
    """Where work is done: a store that holds what its items name, sandboxes over that store, and what gives the
    directory of a built environment (blocking; called in threads)."""

    objects: ObjectStore
    factory: SandboxFactory
    build: Callable[[Environment], Path]


@dataclass(frozen=True)
class Need:
    """What one worker process takes of its node (CPUs, bytes of memory, GPUs), and how many items it has in hand at
    once. Parts of a CPU or a GPU are possible."""

    cpus: float = 1.0
    memory_bytes: int = 512 * 1024**2
    gpus: float = 0.0
    slots: int = 1


class Doer(Protocol[_Item, _Result]):
    """Work that was opened at a place."""

    async def do(self, item: _Item) -> _Result:
        """Do one item.

        Raises:
            PatchgymError: as the work says.
        """
        ...

    async def close(self) -> None:
        """Release what it holds. May be called twice."""
        ...


class WorkSpec(Record, Generic[Item, Result]):
    """A kind of work, described so that it can be opened at any place. Subclasses add their settings as fields;
    ``sandbox`` is the kind of sandbox that it is done in.

    The same spec, item and objects give the same result, save for times, wherever it is done.
    """

    ITEM: ClassVar[type[Record]]
    RESULT: ClassVar[type[Record]]

    sandbox: str = "namespace"

    @property
    def need(self) -> Need:
        """What a worker takes that does it."""
        return Need()

    @abstractmethod
    async def open(self, place: Place) -> Doer[Item, Result]:
        """Make ready to work at a place.

        Raises:
            PatchgymError: it cannot be done there.
        """

    @abstractmethod
    def name(self, item: Item) -> str:
        """What people call an item."""

    @abstractmethod
    def needs(self, item: Item) -> frozenset[str]:
        """The ids of the blobs and trees that an item names."""

    def leaves(self, result: Result) -> frozenset[str]:
        """The ids of the blobs and trees that a result names."""
        return frozenset()


class Executor(Protocol[_Item, _Result]):
    """Does the items of one kind of work."""

    async def do(self, item: _Item) -> _Result:
        """Do one item, once there is a slot for it. Ask for any number at once: those that wait cost nothing.

        Raises:
            WorkLostError: the item cost three workers.
            PatchgymError: as the work says.
        """
        ...


class Doing(Protocol[_Item, _Result]):
    """A function that does an item."""

    def __call__(self, item: _Item, /) -> Awaitable[_Result]:
        """Do it."""
        ...
