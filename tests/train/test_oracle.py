"""Our losses and gradients are TRL's, on one batch, to 1e-5 in float32.

What TRL made of the batch is written down (``benchmarks/trl_oracle.py`` says how); where TRL is installed it is asked
again, by its log-probabilities and through a whole model.
"""

import importlib.util
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from patchgym.train import SftSettings
from patchgym.train.batch import make_batch
from patchgym.train.loading import load_adapted
from patchgym.train.losses import Predictions
from patchgym.train.model import AdaptedModel
from patchgym.train.packed import PackedRows, backward, by_rows, predict
from tests.train.oracle import (
    CASES,
    Sampled,
    our_loss,
    our_results,
    sample,
    their_inputs,
    their_results,
    their_trainer,
)

pytestmark = pytest.mark.train

KEPT: dict[str, Any] = json.loads(Path(__file__).with_name("trl_oracle.json").read_text(encoding="utf-8"))


def need_trl() -> None:
    reason = "LOUD SKIP: TRL itself was not asked, only what it once said; pip install 'trl==1.16.*'"
    if importlib.util.find_spec("trl") is None:
        warnings.warn(reason, stacklevel=2)
    pytest.importorskip("trl", reason=reason)


def kept_sample() -> Sampled:
    """The batch as it was written down."""
    given = sample()
    rows = tuple(
        replace(row, logprobs=tuple(kept["sampler"]), advantages=tuple(kept["advantages"]))
        for row, kept in zip(given.rows, KEPT["rows"], strict=True)
    )
    trainer_R, old_R, reference_R = (
        tuple(tuple(kept[name]) for kept in KEPT["rows"]) for name in ("trainer", "old", "reference")
    )
    return Sampled(rows, trainer_R, old_R, reference_R)


def assert_same(ours: tuple[float, list[list[float]]], theirs: tuple[float, list[list[float]]]) -> None:
    assert ours[0] == pytest.approx(theirs[0], rel=1e-5)
    flat_ours, flat_theirs = ([value for row in part[1] for value in row] for part in (ours, theirs))
    assert flat_ours == pytest.approx(flat_theirs, rel=1e-5, abs=1e-5 * max(map(abs, flat_theirs)))


def test_the_batch_written_down_is_the_one_that_is_made() -> None:
    given = sample()
    assert [list(row.ids) for row in given.rows] == [kept["ids"] for kept in KEPT["rows"]]
    assert [list(row.trainable) for row in given.rows] == [kept["trainable"] for kept in KEPT["rows"]]


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_are_what_trl_said(name: str) -> None:
    theirs = KEPT["theirs"][name]
    assert_same(our_results(CASES[name], kept_sample()), (theirs["loss"], theirs["gradient"]))


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_are_what_trl_says(name: str, model_dir: Path, cache: Path, tmp_path: Path) -> None:
    need_trl()
    model = load_adapted(str(model_dir), SftSettings(lora_rank=2), cache)
    trainer = their_trainer(CASES[name], model.peft_model, model.tokenizer, tmp_path)
    assert_same(our_results(CASES[name], sample()), their_results(CASES[name], sample(), trainer))


@pytest.fixture
def model(model_dir: Path, cache: Path) -> AdaptedModel:
    """The tiny model with an adapter that already does something."""
    adapted = load_adapted(str(model_dir), SftSettings(lora_rank=2), cache)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in adapted.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return adapted


@pytest.mark.parametrize("name", CASES)
def test_through_a_model_gradients_of_the_weights_are_trls(name: str, model: AdaptedModel, tmp_path: Path) -> None:
    """TRL pads prompts on the left, answers on the right, and masks observations; we read rows as they are."""
    need_trl()
    case, given = CASES[name], sampled_by(model)
    batch = make_batch(given.rows)
    packed = PackedRows(given.rows, 64)

    def whole(numbers_M: torch.Tensor, seen: Predictions) -> torch.Tensor:
        return our_loss(case, batch, seen, given)

    ours, summed = by_rows(whole, predict(model, packed))
    backward(model, packed, summed)
    our_gradients = [part.grad for part in model.parameters()]
    trainer = their_trainer(case, model.peft_model, model.tokenizer, tmp_path)
    theirs = trainer._compute_loss(trainer.model, their_inputs(case, given))
    their_gradients = torch.autograd.grad(theirs, model.parameters())
    assert ours == pytest.approx(theirs.item(), rel=1e-5)
    largest = max(gradient.abs().max().item() for gradient in their_gradients)
    for left, right in zip(our_gradients, their_gradients, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-5 * largest)


def sampled_by(model: AdaptedModel) -> Sampled:
    """The batch, with every policy's log-probabilities moved to about those of the model."""
    given = sample()

    def moved(row: int, values: tuple[float, ...]) -> tuple[float, ...]:
        one = given.rows[row]
        with torch.no_grad():
            said = iter(predict(model, PackedRows([one], 64)).logprobs_N.tolist())
        by = zip(values, given.trainer[row], one.trainable, strict=True)
        return tuple(next(said) + value - before if bit else 0.0 for value, before, bit in by)

    places = range(len(given.rows))
    return Sampled(
        rows=tuple(replace(given.rows[at], logprobs=moved(at, given.rows[at].logprobs)) for at in places),
        trainer=tuple(moved(at, given.trainer[at]) for at in places),
        old=tuple(moved(at, given.old[at]) for at in places),
        reference=tuple(moved(at, given.reference[at]) for at in places),
    )
