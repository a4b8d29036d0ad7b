"""What a loss knows of trained ids, beside what the model says of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from patchgym.train.rows import TokenRow


@dataclass(frozen=True)
class Batch:
    """Trained ids of ``rows``, all of them or some. N of them, each of shape N.

    ``numbers_N`` is an id's place among all trained ids of the rows, row after row. It is of row ``rows_N`` and step
    ``turns_N``, was given ``sampler_N`` nats by the sampler, and has the advantage ``advantages_N``.
    """

    rows: tuple[TokenRow, ...]
    numbers_N: Tensor
    rows_N: Tensor
    turns_N: Tensor
    sampler_N: Tensor
    advantages_N: Tensor

    def take(self, numbers_M: Tensor) -> "Batch":
        """Some of the ids of a whole batch, in this order."""
        return replace(
            self,
            numbers_N=self.numbers_N[numbers_M],
            rows_N=self.rows_N[numbers_M],
            turns_N=self.turns_N[numbers_M],
            sampler_N=self.sampler_N[numbers_M],
            advantages_N=self.advantages_N[numbers_M],
        )

    @property
    def trajectories(self) -> list[str]:
        """The ids of the trajectories that these ids are of, in order."""
        return sorted({self.rows[row].trajectory_id for row in self.rows_N.tolist()})


def make_batch(rows: Sequence[TokenRow], device: torch.device | str = "cpu") -> Batch:
    """All trained ids of rows. Advantages of None count as 0: only imitation has them, and does not read them."""
    trained = [(index, at) for index, row in enumerate(rows) for at, bit in enumerate(row.trainable) if bit]
    return Batch(
        rows=tuple(rows),
        numbers_N=torch.arange(len(trained), device=device),
        rows_N=torch.tensor([index for index, _ in trained], dtype=torch.long, device=device),
        turns_N=torch.tensor([rows[index].turns[at] for index, at in trained], dtype=torch.long, device=device),
        sampler_N=torch.tensor([rows[index].logprobs[at] for index, at in trained], device=device),
        advantages_N=torch.tensor([_advantage(rows[index], at) for index, at in trained], device=device),
    )


def _advantage(row: TokenRow, at: int) -> float:
    return row.advantages[at] if row.advantages is not None else 0.0
