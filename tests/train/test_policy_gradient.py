"""Whole updates by each algorithm, and what they leave out."""

import math
from pathlib import Path

import pytest

from patchgym.records import Message, Trajectory
from patchgym.train import grpo
from tests.train.tiny import BAD, GOOD, RL, answer_logprob, published, rewarded

pytestmark = pytest.mark.train


@pytest.mark.parametrize("algorithm", ["grpo", "dr_grpo", "dapo", "gspo", "cispo", "rloo"])
@pytest.mark.parametrize("tis_cap", [None, 2.0])
def test_every_algorithm_favours_the_rewarded_action(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path, algorithm: str, tis_cap: float | None
) -> None:
    settings = RL.model_copy(update={"algorithm": algorithm, "tis_cap": tis_cap})
    report = grpo(pair, start=str(model_dir), out=tmp_path, settings=settings, cache=cache, trained_on={})
    after = published(tmp_path, report)
    assert after.name.startswith(f"{algorithm}-1-")
    assert answer_logprob(after, cache, GOOD) > answer_logprob(model_dir, cache, GOOD) + 0.01
    assert answer_logprob(after, cache, BAD) < answer_logprob(model_dir, cache, BAD) - 0.01
    (step,) = report.steps
    assert (step.ratio_quantiles is None) == (algorithm == "rloo")
    assert step.sampler_gap == pytest.approx(0.0, abs=1e-5)
    assert step.entropy is not None
    assert 0 < step.entropy <= math.log(258)
    assert step.tis_capped_share == (None if tis_cap is None else 0.0)


def test_the_reference_is_the_base_or_the_start(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    first = published(tmp_path, grpo(pair, start=str(model_dir), out=tmp_path, settings=RL, cache=cache, trained_on={}))

    def first_kl(reference: str) -> float:
        settings = RL.model_copy(update={"kl": 0.1, "reference": reference})
        report = grpo(pair, start=str(first), out=tmp_path / "next", settings=settings, cache=cache, trained_on={})
        assert report.steps[0].kl is not None
        return report.steps[0].kl

    assert first_kl("start") == pytest.approx(0.0, abs=1e-9)
    assert first_kl("base") > 1e-4


def test_a_turn_that_the_model_did_not_sample_is_named_and_left_out(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    foreign = [
        step.model_copy(update={"tokens": step.tokens.model_copy(update={"logprobs": (-0.1,) * 3})})
        if step.tokens and step.index
        else step
        for step in pair[1].steps
    ]
    settings = RL.model_copy(update={"max_sampler_gap": 0.01})
    report = grpo(
        [pair[0], rewarded(pair[1], steps=tuple(foreign))],
        start=str(model_dir),
        out=tmp_path,
        settings=settings,
        cache=cache,
        trained_on={},
    )
    (mismatch,) = report.mismatches
    assert (mismatch.trajectory, mismatch.turn) == ("g.1", 1)
    assert (report.rows_used, report.left_out) == (1, {"sampler_gap": 1})


def test_rows_too_many_updates_behind_the_checkpoint_are_left_out(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    first = published(tmp_path, grpo(pair, start=str(model_dir), out=tmp_path, settings=RL, cache=cache, trained_on={}))

    def left_out(most: int) -> dict[str, int]:
        settings = RL.model_copy(update={"max_staleness": most})
        return grpo(pair, start=str(first), out=tmp_path, settings=settings, cache=cache, trained_on={}).left_out

    assert left_out(0) == {"stale": 2}
    assert left_out(1) == {}


def test_prompts_are_held_against_their_messages(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    asked = (Message(role="user", content="something else"),)
    told = [one.model_copy(update={"prompt": asked}) for one in pair[1].steps]
    trajectories = [pair[0], rewarded(pair[1], steps=tuple(told))]

    def left_out(check: bool) -> dict[str, int]:
        settings = RL.model_copy(update={"check_prompts": check})
        return grpo(
            trajectories, start=str(model_dir), out=tmp_path, settings=settings, cache=cache, trained_on={}
        ).left_out

    assert left_out(True) == {"prompt_mismatch": 1}
    assert left_out(False) == {}
