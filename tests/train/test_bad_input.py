"""Input that cannot be trained on: it is counted, named or refused, and never trained in silence."""

import json
import math
from pathlib import Path

import pytest
import torch

from patchgym.errors import DataError, DivergenceError
from patchgym.policy.chat import ChatEncoder
from patchgym.records import StepTokens, Trajectory
from patchgym.train import RowSet, TokenRow, grpo
from patchgym.train.causes import diverged_gradient, why_zero
from patchgym.train.loading import load_adapted
from patchgym.train.objectives import PolicyGradient
from patchgym.train.trainer import train
from tests.records_for_tests import make_step
from tests.train.tiny import RL, graded, load, published, rewarded, sampled_steps

pytestmark = pytest.mark.train

ROW = TokenRow((1, 2, 3), (0, 1, 1), (0.0, -5.0, -5.0), (-1, 0, 0), "t", "g", advantages=(0.0, 1.0, 1.0))


def test_rows_of_one_token_are_trained(model_dir: Path, cache: Path, tmp_path: Path) -> None:
    model = load(model_dir, cache)
    short = [graded(sampled_steps(model, [([10], [answer])]), reward, at) for at, (answer, reward) in
             enumerate(((20, 1.0), (30, 0.0)))]  # fmt: skip
    report = grpo(short, start=str(model_dir), out=tmp_path, settings=RL, cache=cache, trained_on={})
    assert (report.gradient, report.trained_tokens) == ("nonzero", 2)


def test_a_row_that_is_one_token_alone_is_left_out(model_dir: Path, cache: Path, tmp_path: Path) -> None:
    tokens = StepTokens(prompt_ids=(), sampled_ids=(20,), logprobs=(-1.0,), mask=(1,))
    steps = [make_step(0, tokens=tokens).model_copy(update={"prompt": ()})]
    alone = [graded(steps, reward, at) for at, reward in enumerate((1.0, 0.0))]
    report = grpo(alone, start=str(model_dir), out=tmp_path, settings=RL, cache=cache, trained_on={})
    assert (report.version, report.left_out) == (None, {"nothing_trainable": 2})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_log_probabilities_that_are_not_finite_are_named_and_left_out(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path, value: float
) -> None:
    steps = [
        step.model_copy(update={"tokens": step.tokens.model_copy(update={"logprobs": (value,) * 3})})
        for step in pair[0].steps
        if step.tokens
    ]
    report = grpo(
        [rewarded(pair[0], steps=tuple(steps)), pair[1]],
        start=str(model_dir),
        out=tmp_path,
        settings=RL,
        cache=cache,
        trained_on={},
    )
    assert report.left_out == {"bad_logprobs": 1}
    assert (report.mismatches[0].trajectory, report.mismatches[0].turn) == (pair[0].id, 0)


def test_ids_of_another_tokenizer_are_named_and_left_out(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    encoder = ChatEncoder(load_adapted(str(model_dir), RL, cache).tokenizer)
    step = make_step(0)
    right = tuple(encoder.encode(step.prompt))
    other = tuple((one + 1) % 200 for one in right)  # what another vocabulary would call the same text

    def told(ids: tuple[int, ...], reward: float, sample: int) -> Trajectory:
        tokens = StepTokens(prompt_ids=ids, sampled_ids=(20, 21), logprobs=(-5.0, -5.0), mask=(1, 1))
        return graded([step.model_copy(update={"tokens": tokens})], reward, sample)

    report = grpo(
        [told(right, 1.0, 0), told(other, 0.0, 1)],
        start=str(model_dir),
        out=tmp_path,
        settings=RL.model_copy(update={"max_row_tokens": 256}),
        cache=cache,
        trained_on={},
    )
    assert (report.rows_used, report.left_out) == (1, {"prompt_mismatch": 1})
    assert report.mismatches[0].trajectory == "g.1"


def test_a_checkpoint_of_another_model_is_refused(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    report = grpo(pair, start=str(model_dir), out=tmp_path, settings=RL, cache=cache, trained_on={})
    place = published(tmp_path, report)
    config = place / "adapter" / "adapter_config.json"
    told = json.loads(config.read_text())
    config.write_text(json.dumps({**told, "target_modules": ["q_proj"]}))
    with pytest.raises(DataError, match="Cannot load the model"):
        grpo(pair, start=str(place), out=tmp_path, settings=RL, cache=cache, trained_on={})


def test_a_ratio_that_overflows_is_said_to(model_dir: Path, cache: Path, tmp_path: Path) -> None:
    far = TokenRow((1, 2, 3), (0, 1, 1), (0.0, -5.0, -999.0), (-1, 4, 7), "far", "g", advantages=(0.0, -1.0, -1.0))
    model = load_adapted(str(model_dir), RL, cache)
    with pytest.raises(DivergenceError, match=r"ratio overflows in turn 7 of far: .* -999 by the sampler") as found:
        train(RowSet(rows=(ROW, far)), model, PolicyGradient(RL), RL, out=tmp_path, trained_on={})
    assert "rows of far." in found.value.why


def test_a_weight_that_is_not_finite_is_named(model_dir: Path, cache: Path, tmp_path: Path) -> None:
    model = load_adapted(str(model_dir), RL, cache)
    with torch.no_grad():
        model.parameters()[3].view(-1)[0] = math.nan
    with pytest.raises(DivergenceError, match=r"The weight \S*lora_\S* is not finite already"):
        train(RowSet(rows=(ROW,)), model, PolicyGradient(RL), RL, out=tmp_path, trained_on={})


def test_a_gradient_that_is_not_finite_names_the_row_and_the_first_parameter(model_dir: Path, cache: Path) -> None:
    model = load_adapted(str(model_dir), RL, cache)
    weights = model.parameters()
    weights[2].grad = torch.full_like(weights[2], math.inf)
    other = TokenRow(ROW.ids, ROW.trainable, ROW.logprobs, ROW.turns, "other", "g")

    def gradient_of(row: TokenRow) -> None:
        weights[5].grad = torch.full_like(weights[5], math.nan if row.trajectory_id == "other" else 1.0)

    names = [name for name, part in model.peft_model.named_parameters() if part.requires_grad]
    error = diverged_gradient(math.inf, [ROW, other], model, gradient_of)
    assert error.why == f"It came up in rows of other. The first parameter that has it is {names[2]}."
    assert all(part.grad is None for part in weights)


def test_a_zero_gradient_of_cispo_is_not_laid_to_the_clip(model_dir: Path, cache: Path, tmp_path: Path) -> None:
    cispo = RL.model_copy(update={"algorithm": "cispo", "clip_low": 0.01, "clip_high": 0.01})
    far = TokenRow((1, 2, 3), (0, 1, 1), (0.0, -1.0, -1.0), (-1, 0, 0), "t", "g", advantages=(0.0, 0.0, 0.0))
    model = load_adapted(str(model_dir), cispo, cache)
    report = train(RowSet(rows=(far,)), model, PolicyGradient(cispo), cispo, out=tmp_path, trained_on={})
    assert report.steps[0].clip_share == 1.0
    assert report.gradient == "zero"
    assert "cancel out" in report.why
    gone = [step.model_copy(update={"max_ratio": 0.0}) for step in report.steps]
    assert "underflows to 0" in why_zero(RowSet(), RowSet().left_out, gone, cispo)
