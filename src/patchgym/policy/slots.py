"""Keys and values of the rows that a model is working on, each token in the slot of its own position.

Rows of different lengths lie side by side without padding: a row's token at position ``p`` is in slot ``p`` of every
layer, and a query at position ``p`` sees slots 0 to ``p``. What lies beyond a row's length is overwritten before it is
ever seen. Tensors are allocated ahead and written in place, so that a step copies nothing that it did not make.

Shapes: ``B`` rows of a step, ``T`` tokens of a step, ``S`` slots, ``R`` rows held, ``H`` key/value heads, ``D`` numbers
a head.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

_CHUNK = 256


@dataclass(frozen=True)
class KeyValues:
    """Keys and values of one token sequence on its own: for each layer two tensors ``[H, length, D]``."""

    layers: list[tuple[Tensor, Tensor]]


class SlotCache:
    """A cache for transformers models: their attention hands new keys and values to ``update`` and attends to what it
    returns. Aim it at the rows and positions of a step with ``aim`` before each forward pass."""

    def __init__(self) -> None:
        self._layers: list[tuple[Tensor, Tensor]] = []
        self._rows = slice(0, 0)
        self._positions_BT = torch.zeros(0, 0, dtype=torch.long)
        self._capacity = (0, 0)

    def aim(self, first: int, positions_BT: Tensor) -> Tensor:
        """Make the next forward pass work on rows ``first`` to ``first + B`` at ``positions_BT``.

        Returns:
            The attention mask of that pass, bool ``[B, 1, T, S]``: true where a slot may be seen.
        """
        self._rows = slice(first, first + len(positions_BT))
        self._positions_BT = positions_BT
        span = int(positions_BT.max()) + 1
        self.reserve(self._rows.stop, span)
        slots_S = torch.arange(span, device=positions_BT.device)
        return (slots_S <= positions_BT[:, :, None])[:, None]

    def update(
        self, keys_BHTD: Tensor, values_BHTD: Tensor, layer: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Store a layer's new keys and values; return all that the step's rows have there, ``[B, H, S, D]``."""
        if layer == len(self._layers):
            self._layers.append((self._empty(keys_BHTD), self._empty(values_BHTD)))
        span = int(self._positions_BT.max()) + 1
        seen = []
        for held_RHSD, new_BHTD in zip(self._layers[layer], (keys_BHTD, values_BHTD), strict=True):
            rows_BHSD = held_RHSD[self._rows]
            rows_BHSD.scatter_(2, self._positions_BT[:, None, :, None].expand_as(new_BHTD), new_BHTD)
            seen.append(rows_BHSD[:, :, :span])
        return seen[0], seen[1]

    def get_seq_length(self, layer: int = 0) -> int:
        """Part of what transformers asks of a cache; positions are always given, so that the answer is not used."""
        return 0

    def read(self, row: int, length: int) -> KeyValues:
        """A copy of the first ``length`` slots of a row."""
        return KeyValues([(k[row, :, :length].clone(), v[row, :, :length].clone()) for k, v in self._layers])

    def write(self, row: int, known: KeyValues, length: int) -> None:
        """Fill the first ``length`` slots of a row."""
        self.reserve(row + 1, length)
        for held, given in zip(self._layers, known.layers, strict=True):
            for held_RHSD, given_HTD in zip(held, given, strict=True):
                held_RHSD[row, :, :length] = given_HTD[:, :length]

    def copy(self, source: int, row: int, length: int) -> None:
        """Copy the first ``length`` slots of row ``source`` to ``row``."""
        self.reserve(row + 1, length)
        for held in self._layers:
            for held_RHSD in held:
                held_RHSD[row, :, :length] = held_RHSD[source, :, :length]

    def reserve(self, rows: int, span: int) -> None:
        """Make room for ``rows`` rows of ``span`` slots; what is there stays."""
        old_rows, old_span = self._capacity
        if rows <= old_rows and span <= old_span:
            return
        new_span = max(old_span, -(-span // _CHUNK) * _CHUNK)
        self._capacity = (max(old_rows, rows), new_span)
        for at, held in enumerate(self._layers):
            grown = (self._empty(held[0]), self._empty(held[1]))
            for held_RHSD, grown_RHSD in zip(held, grown, strict=True):
                grown_RHSD[:old_rows, :, :old_span] = held_RHSD
            self._layers[at] = grown

    def _empty(self, like: Tensor) -> Tensor:
        # Zeros, not uninitialised memory: a hidden slot has weight 0 in the attention, and 0 * NaN is NaN.
        rows, span = self._capacity
        return like.new_zeros(rows, like.shape[1], span, like.shape[3])
