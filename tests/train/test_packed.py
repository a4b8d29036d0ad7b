"""Log-probabilities, losses and gradients over a trie are those of rows read one by one."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from patchgym.train import SftSettings, TokenRow, packed
from patchgym.train.loading import load_adapted
from patchgym.train.losses import Predictions
from patchgym.train.model import AdaptedModel
from patchgym.train.packed import PackedRows, backward, by_rows, predict
from tests.train.tiny import VOCABULARY, full_logprobs

pytestmark = pytest.mark.train
CASES = [
    (size, split, recompute) for size, split in ((1000, False), (40, False), (7, True)) for recompute in (False, True)
]


@pytest.fixture(scope="module", params=[None, 1], ids=["all-layers", "last-layer"])
def model(model_dir: Path, cache: Path, request: pytest.FixtureRequest) -> AdaptedModel:
    """The tiny model with an adapter that already does something."""
    adapted = load_adapted(str(model_dir), SftSettings(lora_rank=2, lora_layers=request.param), cache)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in adapted.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return adapted


def tree_rows(draw: random.Random, depth: int = 3) -> list[TokenRow]:
    """The leaves of a random tree whose branches have three to nine ids, about half of them trained."""
    paths: list[tuple[list[int], list[int]]] = [([draw.randrange(VOCABULARY) for _ in range(12)], [0] * 12)]
    for _ in range(depth):
        grown = []
        for ids, bits in paths:
            for _ in range(draw.randint(1, 3)):
                length = draw.randint(3, 9)
                more = [draw.randrange(VOCABULARY) for _ in range(length)]
                grown.append(([*ids, *more], [*bits, *(draw.randint(0, 1) for _ in range(length - 1)), 1]))
        paths = grown
    return [
        TokenRow(
            ids=tuple(ids),
            trainable=tuple(bits),
            logprobs=(0.0,) * len(ids),
            turns=(0,) * len(ids),
            trajectory_id=f"t{at}",
            group_id="g",
            temperature=draw.choice([1.0, 1.0, 0.7]),
        )
        for at, (ids, bits) in enumerate(paths)
    ]


def flat_logprobs(model: AdaptedModel, rows: list[TokenRow]) -> Tensor:
    """Every row on its own, through the whole model."""
    return torch.cat(
        [
            full_logprobs(model.peft_model, row.ids, row.temperature)[torch.tensor(row.trainable[1:]).bool()]
            for row in rows
        ]
    )


def weighted(numbers_M: Tensor, seen: Predictions) -> Tensor:
    """A loss that treats every id otherwise."""
    return (seen.logprobs_N.exp() * (1.0 + numbers_M)).sum()


def gradients(model: AdaptedModel) -> list[Tensor]:
    found = [part.grad.clone() if part.grad is not None else torch.zeros_like(part) for part in model.parameters()]
    for part in model.parameters():
        part.grad = None
    return found


def assert_alike(ours: list[Tensor], wanted: list[Tensor]) -> None:
    """To 1e-5 of the largest number of each gradient."""
    for left, right in zip(ours, wanted, strict=True):
        assert (left - right).abs().max() <= 1e-5 * right.abs().max().clamp(min=1e-3)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("size", "split", "recompute"), CASES)
def test_loss_and_gradients_are_those_of_flat_rows(
    model: AdaptedModel, seed: int, size: int, split: bool, recompute: bool
) -> None:
    rows = tree_rows(random.Random(seed))
    wanted_N = flat_logprobs(model, rows)
    wanted = weighted(torch.arange(len(wanted_N)), Predictions(wanted_N, wanted_N))
    slopes = torch.autograd.grad(wanted, model.parameters())
    loss = backward(model, PackedRows(rows, size, split=split), weighted, recompute=recompute)
    assert loss == pytest.approx(wanted.item(), rel=1e-5)
    assert_alike(gradients(model), list(slopes))


@pytest.mark.parametrize(("size", "split"), [(1000, False), (40, False), (7, True)])
def test_predictions_are_those_of_flat_rows_in_their_order(model: AdaptedModel, size: int, split: bool) -> None:
    rows = tree_rows(random.Random(5))
    seen = predict(model, PackedRows(rows, size, split=split))
    torch.testing.assert_close(seen.logprobs_N, flat_logprobs(model, rows).detach(), atol=1e-5, rtol=0)


def test_entropy_is_that_of_the_distribution_at_the_rows_temperature(model: AdaptedModel) -> None:
    row = replace(tree_rows(random.Random(6))[0], temperature=0.7)
    logits_TV = model.peft_model(input_ids=torch.tensor([row.ids])).logits[0, :-1] / 0.7
    entropy_T = -(logits_TV.softmax(-1) * logits_TV.log_softmax(-1)).sum(-1)
    wanted_T = entropy_T[torch.tensor(row.trainable[1:]).bool()]
    seen = predict(model, PackedRows([row], 1000))
    torch.testing.assert_close(seen.entropy_N, wanted_T.detach(), atol=1e-4, rtol=0)


def test_what_rows_share_is_read_once(model: AdaptedModel) -> None:
    rows = tree_rows(random.Random(7))
    beginnings = {row.ids[:end] for row in rows for end in range(1, len(row.ids))}
    assert PackedRows(rows, 40).read == len(beginnings) < sum(len(row.ids) - 1 for row in rows)


def test_rows_that_share_nothing_and_rows_that_are_the_same_are_rows_as_well(model: AdaptedModel) -> None:
    one, other = tree_rows(random.Random(8))[0], tree_rows(random.Random(9))[0]
    rows = [one, other, one, replace(one, ids=one.ids[:20], trainable=(0,) * 19 + (1,))]
    for size in (1000, 9):
        seen = predict(model, PackedRows(rows, size))
        torch.testing.assert_close(seen.logprobs_N, flat_logprobs(model, rows).detach(), atol=1e-5, rtol=0)


def test_logits_are_made_in_blocks_where_there_are_many(model: AdaptedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tree_rows(random.Random(10))
    whole = backward(model, PackedRows(rows, 1000), weighted)
    wanted = gradients(model)
    monkeypatch.setattr(packed, "_LOGITS", 3 * VOCABULARY)
    assert backward(model, PackedRows(rows, 1000), weighted) == pytest.approx(whole, rel=1e-6)
    assert_alike(gradients(model), wanted)


def test_a_loss_in_which_the_ids_of_a_row_meet_has_its_own_gradient_over_many_chunks(model: AdaptedModel) -> None:
    rows = tree_rows(random.Random(11))
    rows_N = torch.tensor([at for at, row in enumerate(rows) for bit in row.trainable if bit])

    def squared(numbers_M: Tensor, seen: Predictions) -> Tensor:
        return torch.zeros(len(rows)).index_add(0, rows_N[numbers_M], seen.logprobs_N).square().sum()

    flat_N = flat_logprobs(model, rows)
    wanted = squared(torch.arange(len(flat_N)), Predictions(flat_N, flat_N))
    slopes = torch.autograd.grad(wanted, model.parameters())
    laid = PackedRows(rows, 9)
    assert len(laid.chunks) > 3
    loss, summed = by_rows(squared, predict(model, laid))
    backward(model, laid, summed)
    assert loss == pytest.approx(wanted.item(), rel=1e-5)
    assert_alike(gradients(model), list(slopes))


@pytest.mark.parametrize("lengths", [(20, 22, 19), (26, 5, 9)], ids=["about-as-long", "of-other-lengths"])
def test_rows_that_share_nothing_are_read_side_by_side_where_that_is_no_waste(
    lengths: tuple[int, ...], model: AdaptedModel
) -> None:
    whole = [tree_rows(random.Random(20 + at), depth=5)[0] for at in range(len(lengths))]
    rows = [
        replace(row, ids=(at, *row.ids[1:length]), trainable=(*row.trainable[: length - 1], 1))
        for at, (row, length) in enumerate(zip(whole, lengths, strict=True))
    ]
    packed = PackedRows(rows, 1000)
    (one,) = packed.passes
    assert (one.mask_TS is None) == (lengths[0] == 20)
    wanted_N = flat_logprobs(model, rows)
    torch.testing.assert_close(predict(model, packed).logprobs_N, wanted_N.detach(), atol=1e-5, rtol=0)
    wanted = weighted(torch.arange(len(wanted_N)), Predictions(wanted_N, wanted_N))
    slopes = torch.autograd.grad(wanted, model.parameters())
    backward(model, packed, weighted)
    assert_alike(gradients(model), list(slopes))
