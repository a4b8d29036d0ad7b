"""One update by several processes, each with a device of its own.

Every process holds the whole model and reads its share of a step's rows; gradients are summed over all of them before
they are clipped, and every process then makes the same step. Losses are divided by the normaliser of the whole step, so
that the gradient is that of one process but for the order of additions. Processes come from ``torchrun`` or
``accelerate launch``, which tell each its number by ``RANK`` and ``WORLD_SIZE``.

A process that fails ends alone; the launcher then ends the others, which wait for it.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from patchgym.errors import ConfigError
from patchgym.train.rows import TokenRow
from patchgym.train.trie import build_trie

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """The processes of an update: this one's number ``rank`` among ``size``. Alone, nothing here does anything."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the one that writes and reports."""
        return self.rank == 0

    def share(self, rows: Sequence[TokenRow]) -> list[TokenRow]:
        """This process's rows of a step (see ``shares``)."""
        return shares(rows, self.size)[self.rank]

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Put the sum of all processes' gradients into every process's."""
        if self.size == 1:
            return
        for parameter in parameters:
            if parameter.grad is None:  # a process without rows takes part with zeros
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)

    def joined(self, figures: Mapping[str, Sequence[Tensor]]) -> dict[str, Tensor]:
        """Lists of tensors by name, as one tensor each on the CPU, those of all processes in order."""
        mine = {name: torch.cat(list(parts)) for name, parts in figures.items()}
        if self.size == 1:
            return mine
        parts: defaultdict[str, list[Tensor]] = defaultdict(list)
        for told in self._gathered({name: part.cpu() for name, part in mine.items()}):
            for name, part in told.items():
                parts[name].append(part)
        return {name: torch.cat(some) for name, some in parts.items()}

    def total(self, value: float) -> float:
        """The sum of a number over all processes."""
        return value if self.size == 1 else sum(self._gathered(value))

    def once(self, work: Callable[[], T]) -> T:
        """What ``work`` returns to the first process, which alone does it."""
        if self.size == 1:
            return work()
        told: list[Any] = [work() if self.first else None]
        dist.broadcast_object_list(told, src=0)
        found: T = told[0]
        return found

    def _gathered(self, value: T) -> list[T]:
        told: list[Any] = [None] * self.size
        dist.all_gather_object(told, value)
        return told


ALONE = Ranks()
"""One process."""


def ranks_here() -> Ranks:
    """The processes that this one was launched with; begins to talk to them where there are others.

    Raises:
        ConfigError: a launcher says that there are several, and not where they meet.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return Ranks()
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise ConfigError(
            f"WORLD_SIZE is {size}, and {', '.join(missing)} is not set",
            why="Processes of one update must know their number and where they meet.",
            mend="Launch them with torchrun or accelerate launch, or unset WORLD_SIZE.",
        )
    if not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    return Ranks(dist.get_rank(), size)


def shares(rows: Sequence[TokenRow], count: int) -> list[list[TokenRow]]:
    """Rows dealt to ``count`` processes. A group stays whole, because its rows share what they begin with; the groups
    that have most to read are dealt first, each to the process that has least."""
    groups: defaultdict[str, list[TokenRow]] = defaultdict(list)
    for row in rows:
        groups[row.group_id].append(row)
    weights = {name: build_trie([row.ids[:-1] for row in some]).size for name, some in groups.items()}
    dealt: list[list[TokenRow]] = [[] for _ in range(count)]
    loads = [0] * count
    for name in sorted(groups, key=lambda one: -weights[one]):
        least = loads.index(min(loads))
        dealt[least] += groups[name]
        loads[least] += weights[name]
    return dealt
