"""Log-probabilities and gradients over a trie of rows: what rows share is read once.

A chunk of the trie is one pass of the model. Its keys and values are kept as leaves, where the gradients of all chunks
that continue it add up; its own backward pass then carries their sum on. Loss and gradients are those of rows that were
each read from the start. At any time only the chunks between the beginning of rows and the one at hand hold
activations; with ``recompute`` it is the one at hand alone, and the others are read a second time when their turn to go
backward comes.

Shapes: ``T`` ids of a chunk, ``S`` those that it can see, ``N`` trained ids of rows, row after row, ``U`` different
places that predict some of them, ``V`` the vocabulary, ``H`` heads, ``D`` numbers a head or a hidden state.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache

from patchgym.train.losses import Predictions, entropy
from patchgym.train.model import AdaptedModel, contents
from patchgym.train.rows import TokenRow
from patchgym.train.trie import Chunk, build_trie, cut, walk

_LOGITS = 1 << 26  # numbers in the logits of one go: 256 MB in float32
_PADDED = 1.25  # at most so many ids are read for each that is no padding

LossOf = Callable[[Tensor, Predictions], Tensor]
"""The loss of some trained ids, summed: their numbers among the N, and what the model says of them."""


@dataclass(frozen=True)
class _Pass:
    """A chunk laid out as ``B`` lines: one, in which ``mask_TS`` tells what an id can see, or one for each row of rows
    that share nothing, of whose ids ``real_T`` are no padding. It continues ``past``: chunks with the places of their
    ids that it can see. Its ids that predict trained ones are ``places_U``, at ``temperature_U``; trained id
    ``numbers_M`` is ``targets_M``, predicted by ``heads_M`` of the U."""

    ids_BT: Tensor
    positions_BT: Tensor
    mask_TS: Tensor | None
    real_T: Tensor | None
    past: tuple[tuple[int, Tensor], ...]
    continued: bool
    places_U: Tensor
    temperature_U: Tensor
    numbers_M: Tensor
    heads_M: Tensor
    targets_M: Tensor


class PackedRows:
    """Rows laid out as a trie that is cut into chunks of at most ``chunk_ids`` ids. A chunk with a segment that is
    longer than that is as long as its segment, unless ``split`` cuts those as well."""

    def __init__(
        self, rows: Sequence[TokenRow], chunk_ids: int, *, split: bool = False, device: torch.device | str = "cpu"
    ) -> None:
        self.rows, self.device = tuple(rows), device
        # Nothing follows a row's last id: it is a target, and never read.
        self.trie = build_trie([row.ids[:-1] for row in rows], chunk_ids if split else None)
        self.chunks = cut(self.trie, chunk_ids)
        self.home = [0] * len(self.trie.segments)
        self._at = [0] * len(self.trie.segments)  # where a segment begins in its chunk
        for number, chunk in enumerate(self.chunks):
            at = 0
            for segment in chunk.segments:
                self.home[segment], self._at[segment] = number, at
                at += len(self.trie.segments[segment].ids)

    @property
    def read(self) -> int:
        """How many ids a model reads for all rows."""
        return self.trie.size

    @cached_property
    def passes(self) -> tuple[_Pass, ...]:
        """The chunks, laid out for a model."""
        predicted: list[list[tuple[int, int, float, int]]] = [[] for _ in self.chunks]
        number = 0
        for row, end in zip(self.rows, self.trie.ends, strict=True):
            path = iter(self.trie.path(end))
            segment = -1
            for at, trained in enumerate(row.trainable):
                if not trained:
                    continue
                while segment < 0 or self.trie.segments[segment].end < at:  # the id before ``at`` predicts it
                    segment = next(path)
                place = self._at[segment] + at - 1 - self.trie.segments[segment].start
                predicted[self.home[segment]].append((number, place, row.temperature, row.ids[at]))
                number += 1
        continued = {self.home[chunk.after] for chunk in self.chunks if chunk.after is not None}
        return tuple(self._lay(chunk, at in continued, predicted[at]) for at, chunk in enumerate(self.chunks))

    def _lay(self, chunk: Chunk, continued: bool, predicted: Sequence[tuple[int, int, float, int]]) -> _Pass:
        segments = [self.trie.segments[at] for at in chunk.segments]
        ids = [one for segment in segments for one in segment.ids]
        positions = [at for segment in segments for at in range(segment.start, segment.end)]
        lines = [] if continued else self._lines(chunk)
        wide = max(lines, default=len(ids))
        starts = [number * wide for number in range(len(lines))]
        places = [start + at for start, count in zip(starts, lines, strict=True) for at in range(count)]
        heads = {key: at for at, key in enumerate(dict.fromkeys((place, heat) for _, place, heat, _ in predicted))}
        return _Pass(
            ids_BT=self._laid(ids, places, wide),
            positions_BT=self._laid(positions, places, wide),
            mask_TS=None if lines else self._mask(chunk),
            real_T=self._tensor(places) if lines else None,
            past=self._past(chunk.after),
            continued=continued,
            places_U=self._tensor([place for place, _ in heads]),
            temperature_U=torch.tensor([heat for _, heat in heads], device=self.device),
            numbers_M=self._tensor([number for number, *_ in predicted]),
            heads_M=self._tensor([heads[place, heat] for _, place, heat, _ in predicted]),
            targets_M=self._tensor([target for *_, target in predicted]),
        )

    def _lines(self, chunk: Chunk) -> list[int]:
        """The lengths of rows that share nothing and of which nothing goes on in another chunk, where they are about as
        long as each other: side by side they need no mask, and look at themselves alone. Nothing otherwise."""
        if chunk.after is not None:
            return []
        lines: list[int] = []
        for at, last in zip(chunk.segments, (None, *chunk.segments), strict=False):
            segment = self.trie.segments[at]
            if segment.parent is None:
                lines.append(len(segment.ids))
            elif segment.parent == last:
                lines[-1] += len(segment.ids)
            else:
                return []
        return lines if len(lines) > 1 and len(lines) * max(lines) <= _PADDED * sum(lines) else []

    def _laid(self, numbers: Sequence[int], places: Sequence[int], wide: int) -> Tensor:
        """Numbers at their places in lines that are so wide; without places as one line."""
        if not places:
            return self._tensor(numbers)[None]
        laid_T = torch.zeros(-(-(max(places) + 1) // wide) * wide, dtype=torch.long, device=self.device)
        laid_T[self._tensor(places)] = self._tensor(numbers)
        return laid_T.view(-1, wide)

    def _tensor(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.long, device=self.device)

    def _past(self, after: int | None) -> tuple[tuple[int, Tensor], ...]:
        seen: dict[int, list[int]] = {}
        for segment in self.trie.path(after):
            begin = self._at[segment]
            seen.setdefault(self.home[segment], []).extend(range(begin, begin + len(self.trie.segments[segment].ids)))
        return tuple((chunk, self._tensor(places)) for chunk, places in seen.items())

    def _mask(self, chunk: Chunk) -> Tensor | None:
        """True where an id may look; None where that is everything before it and nothing else."""
        segments = [self.trie.segments[at] for at in chunk.segments]
        before = segments[0].start
        straight = all(one.parent == last for one, last in zip(segments[1:], chunk.segments, strict=False))
        if straight and not before:
            return None
        total = sum(len(segment.ids) for segment in segments)
        mask_TS = torch.zeros(total, before + total, dtype=torch.bool)
        mask_TS[:, :before] = True
        for at, segment in zip(chunk.segments, segments, strict=True):
            begin, end = self._at[at], self._at[at] + len(segment.ids)
            if segment.parent is not None and self.home[segment.parent] == self.home[at]:
                last = self._at[segment.parent] + len(self.trie.segments[segment.parent].ids) - 1
                mask_TS[begin:end, before:] = mask_TS[last, before:]
            mask_TS[begin:end, before + begin : before + end] = torch.ones(end - begin, end - begin).tril().bool()
        return mask_TS.to(self.device)


def predict(model: AdaptedModel, packed: PackedRows) -> Predictions:
    """What the model says of every trained id, without gradients."""
    total = sum(row.trained for row in packed.rows)
    logprobs_N, entropy_N, values_N = (torch.zeros(total, device=packed.device) for _ in range(3))
    kept: dict[int, _KeyValues] = {}
    with torch.no_grad():
        for at, entering in walk(packed.chunks, packed.home):
            if not entering:
                del kept[at]
                continue
            one = packed.passes[at]
            hidden_TD, kept[at] = _read(model, one, kept)
            if len(one.numbers_M):
                seen = _predicted(model, one, hidden_TD)
                logprobs_N[one.numbers_M] = seen.logprobs_N
                entropy_N[one.numbers_M] = given(seen.entropy_N)
                if seen.values_N is not None:
                    values_N[one.numbers_M] = seen.values_N
    return Predictions(logprobs_N, entropy_N, values_N if model.value_head is not None else None)


def backward(
    model: AdaptedModel,
    packed: PackedRows,
    loss_of: LossOf,
    *,
    entropy_gradient: bool = False,
    recompute: bool = False,
) -> float:
    """Add the gradients of a loss to the model's parameters, and return the loss. ``loss_of`` is asked once for every
    chunk with trained ids, and the answers are added up; ``by_rows`` makes such a loss of one that is no sum over ids.
    Entropies have a gradient only if asked for. ``recompute`` trades a second reading of what others continue for its
    activations.
    """
    loss = 0.0
    needed = _needed(model) if recompute else []
    leaves: dict[int, _KeyValues] = {}
    graphs: dict[int, tuple[Tensor, _KeyValues]] = {}
    for at, entering in walk(packed.chunks, packed.home):
        one = packed.passes[at]
        if entering:
            later = recompute and one.continued
            with torch.set_grad_enabled(not later):
                hidden_TD, own = _read(model, one, leaves)
            wanted = needed if later else [part.requires_grad for part in own]
            leaves[at] = [part.detach().requires_grad_(want) for part, want in zip(own, wanted, strict=True)]
            if not later:
                graphs[at] = hidden_TD, own
            continue
        hidden_TD, own = graphs.pop(at) if at in graphs else _read(model, one, leaves)
        pairs = list(zip(own, leaves.pop(at), strict=True))
        ends: list[Tensor] = [made for made, leaf in pairs if leaf.grad is not None]
        gradients: list[Tensor | None] = [leaf.grad for _, leaf in pairs if leaf.grad is not None]
        if len(one.numbers_M):
            part = loss_of(one.numbers_M, _predicted(model, one, hidden_TD, entropy_gradient))
            loss += part.item()
            ends.append(part)
            gradients.append(None)
        if ends:
            torch.autograd.backward(ends, gradients)
    return loss


def by_rows(loss_of: LossOf, seen: Predictions) -> tuple[float, LossOf]:
    """The value of a loss at what ``predict`` said, and a sum over ids with the same gradient there: what is said of
    each id times the loss's derivative by it. For losses in which all ids of a row meet (GSPO's)."""
    said = [part.clone().requires_grad_() for part in _parts(seen)]
    loss = loss_of(torch.arange(len(said[0]), device=said[0].device), Predictions(*said))
    slopes = torch.autograd.grad(loss, said, allow_unused=True)

    def summed(numbers_M: Tensor, again: Predictions) -> Tensor:
        total = again.logprobs_N.new_zeros(())
        for slope_N, part_M in zip(slopes, _parts(again), strict=True):
            if slope_N is not None:
                total = total + (slope_N[numbers_M] * part_M).sum()
        return total

    return loss.item(), summed


def _parts(seen: Predictions) -> list[Tensor]:
    parts = [seen.logprobs_N, given(seen.entropy_N)]
    return parts if seen.values_N is None else [*parts, seen.values_N]


def given(entropy_N: Tensor | None) -> Tensor:
    """The entropies, which this module always gives."""
    assert entropy_N is not None
    return entropy_N


_KeyValues = list[Tensor]
"""Keys and values of a chunk's own ids: those of the first layer, then of the next, each of shape 1HTD."""


def _read(model: AdaptedModel, one: _Pass, kept: Mapping[int, _KeyValues]) -> tuple[Tensor, _KeyValues]:
    """Last hidden states of a chunk's ids, shape TD, and its keys and values, where something continues it."""
    cache = DynamicCache() if one.past or one.continued else None
    before = sum(len(places) for _, places in one.past)
    if cache is not None and one.past:
        seen = [[part.index_select(2, places) for part in kept[chunk]] for chunk, places in one.past]
        joined = [torch.cat(parts, dim=2) for parts in zip(*seen, strict=True)]
        for layer, (keys, values) in enumerate(zip(joined[::2], joined[1::2], strict=True)):
            cache.update(keys, values, layer)
    mask = None if one.mask_TS is None else one.mask_TS[None, None]
    hidden_BTD = model.read(one.ids_BT, cache, mask, one.positions_BT)
    layers = cache.layers if cache is not None and one.continued else []
    hidden_TD = hidden_BTD.flatten(0, 1)
    if one.real_T is not None:
        hidden_TD = hidden_TD[one.real_T]
    return hidden_TD, [part[:, :, before:] for layer in layers for part in contents(layer)]


def _needed(model: AdaptedModel) -> list[bool]:
    """Which keys and values depend on something that is trained. Not those below the lowest adapted layer."""
    cache = DynamicCache()
    model.read(torch.zeros(1, 1, dtype=torch.long, device=model.device), cache)
    return [part.requires_grad for layer in cache.layers for part in contents(layer)]


def _predicted(model: AdaptedModel, one: _Pass, hidden_TD: Tensor, entropy_gradient: bool = False) -> Predictions:
    """What the model says of a chunk's trained ids. The head runs over as many places at once as memory is meant for;
    where that is not all of them, their logits are made again for the backward pass."""
    hidden_UD = hidden_TD[one.places_U]
    block = max(1, _LOGITS // model.vocabulary)
    if len(hidden_UD) <= block:
        return Predictions(*_head(model, entropy_gradient, hidden_UD, one.temperature_U, one.heads_M, one.targets_M))
    order_M = one.heads_M.argsort(stable=True)
    sorted_M = one.heads_M[order_M]
    parts = []
    for first in range(0, len(hidden_UD), block):
        low, high = torch.searchsorted(sorted_M, torch.tensor([first, first + block], device=sorted_M.device)).tolist()
        some = order_M[low:high]
        block_U = slice(first, first + block)
        arguments = (hidden_UD[block_U], one.temperature_U[block_U], one.heads_M[some] - first, one.targets_M[some])
        parts.append(checkpoint(_head, model, entropy_gradient, *arguments, use_reentrant=False))
    back_M = order_M.argsort()
    return Predictions(*(torch.cat(column)[back_M] for column in zip(*parts, strict=True)))


def _head(
    model: AdaptedModel,
    entropy_gradient: bool,
    hidden_UD: Tensor,
    temperature_U: Tensor,
    heads_M: Tensor,
    targets_M: Tensor,
) -> tuple[Tensor, ...]:
    """Log-probabilities and entropies of shape M, and values where the model has a head for them."""
    logits_UV = model.head(hidden_UD).float() / temperature_U[:, None]
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropy_U = entropy(logits_UV)
    logprobs_M = logits_UV[heads_M, targets_M] - logits_UV.logsumexp(-1)[heads_M]
    if model.value_head is None:
        return logprobs_M, entropy_U[heads_M]
    seen_UD = hidden_UD if model.values_into_body else hidden_UD.detach()
    return logprobs_M, entropy_U[heads_M], model.value_head(seen_UD.float())[heads_M, 0]
