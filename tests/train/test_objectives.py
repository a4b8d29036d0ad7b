"""What an algorithm's settings make of a batch, and which settings are refused."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import pytest
import torch

from patchgym.cli.recipe import LoopRecipe
from patchgym.config import load_recipe
from patchgym.errors import ConfigError
from patchgym.train import PolicyGradientSettings, Reason, TokenRow
from patchgym.train.algorithms import ALGORITHMS, Algorithm
from patchgym.train.batch import make_batch
from patchgym.train.figures import step_figures
from patchgym.train.integrity import sampler_mismatches
from patchgym.train.losses import Predictions
from patchgym.train.objectives import PolicyGradient, Say

pytestmark = pytest.mark.train


def row(sampler: Sequence[float], advantage: float = 1.0, name: str = "t") -> TokenRow:
    """A row of one prompt id and trained ids with these log-probabilities."""
    count = len(sampler)
    return TokenRow(
        ids=(1,) * (count + 1),
        trainable=(0, *(1,) * count),
        logprobs=(0.0, *sampler),
        turns=(-1, *range(count)),
        trajectory_id=name,
        group_id="g",
        advantages=(0.0, *(advantage,) * count),
        reward=1.0,
    )


def objective(**settings: object) -> PolicyGradient:
    """An objective with these settings."""
    return PolicyGradient(
        PolicyGradientSettings.model_validate({"max_row_tokens": 10, "reference": "start", **settings})
    )


def prepared(rows: Sequence[TokenRow], start: Predictions | None = None, **settings: object) -> PolicyGradient:
    """The same, of whose rows the starting policy says ``start``."""
    made = objective(**settings)
    made.prepare(rows, said(start))
    return made


def said(start: Predictions | None) -> Say:
    def say(rows: Sequence[TokenRow], of: str) -> Predictions:
        assert start is not None
        assert of == "start"
        return start

    return say


def test_the_default_is_dr_grpo_as_it_was() -> None:
    chosen = PolicyGradientSettings().choices
    assert (chosen.loss, chosen.ratio, chosen.normalise, chosen.baseline) == ("clip", "token", "constant", "group")
    assert (chosen.divide_by_std, chosen.clip_low, chosen.clip_high) == (False, 0.2, 0.28)


def test_a_recipe_names_an_algorithm_under_its_old_key() -> None:
    recipe = load_recipe(LoopRecipe, None, ["grpo.algorithm=gspo", "grpo.normalise=tokens"])
    assert recipe.grpo.choices == replace(ALGORITHMS["gspo"], normalise="tokens")


@pytest.mark.parametrize("algorithm", get_args(Algorithm))
def test_every_algorithm_stands_without_further_settings(algorithm: Algorithm) -> None:
    assert PolicyGradientSettings(algorithm=algorithm).choices == ALGORITHMS[algorithm]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"algorithm": "rloo", "clip_low": 0.2}, "no ratio"),
        ({"algorithm": "rloo", "ratio": "sequence"}, "no ratio"),
        ({"algorithm": "rloo", "passes": 2}, "does not correct"),
        ({"algorithm": "rloo", "divide_by_std": True}, "leave_one_out"),
        ({"algorithm": "ppo", "divide_by_std": True}, "baseline is value"),
        ({"algorithm": "ppo", "step_credit": 0.5}, "baseline is value"),
        ({"algorithm": "ppo", "min_spread": 0.1}, "baseline is value"),
        ({"baseline": "siblings", "step_credit": 0.5}, "baseline is siblings"),
        ({"value": {"weight": 1.0}}, "no values"),
    ],
)
def test_choices_that_contradict_each_other_are_refused_with_the_mend(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        PolicyGradientSettings.model_validate(settings)
    assert refused.value.mend


def test_another_baseline_takes_the_deviation_with_it() -> None:
    assert not PolicyGradientSettings(algorithm="grpo", baseline="leave_one_out").choices.divide_by_std
    assert PolicyGradientSettings(algorithm="grpo", baseline="leave_one_out").least_spread == 0.0


def test_a_mean_over_rows_counts_every_row_alike() -> None:
    rows = [row([-1.0]), row([-1.0, -1.0, -1.0])]
    losses_N, _ = objective(algorithm="grpo").token_losses(make_batch(rows), Predictions(torch.full((4,), -1.0)))
    torch.testing.assert_close(losses_N, torch.tensor([-1.0, -1 / 3, -1 / 3, -1 / 3]))
    assert objective(algorithm="grpo").normaliser(rows) == 2
    assert objective(algorithm="dapo").normaliser(rows) == 4
    assert objective(algorithm="dr_grpo").normaliser(rows) == 20


@pytest.mark.parametrize("algorithm", ["grpo", "dr_grpo", "dapo", "gspo", "cispo", "rloo"])
def test_micro_batches_add_up_to_the_step(algorithm: str) -> None:
    rows = [row([-1.0, -2.0], 0.5), row([-0.5], -1.0), row([-1.5, -0.2, -0.3], 2.0)]
    logprobs_N = torch.tensor([-1.1, -1.9, -0.6, -1.4, -0.3, -0.2])
    made = objective(algorithm=algorithm)
    whole_N, _ = made.token_losses(make_batch(rows), Predictions(logprobs_N))
    parts = (
        made.token_losses(make_batch(rows[:1]), Predictions(logprobs_N[:2]))[0],
        made.token_losses(make_batch(rows[1:]), Predictions(logprobs_N[2:]))[0],
    )
    torch.testing.assert_close(torch.cat(parts), whole_N)


def test_with_a_cap_the_ratio_is_against_the_start_and_the_sampler_is_a_weight() -> None:
    one = row([-1.0, -3.0])
    start = Predictions(torch.tensor([-1.0 + math.log(0.5), -1.0]))
    made = prepared([one], start, algorithm="dapo", tis_cap=2.0)
    logprobs_N = start.logprobs_N + math.log(1.1)
    losses_N, seen = made.token_losses(make_batch([one]), Predictions(logprobs_N))
    torch.testing.assert_close(seen["ratio"], torch.tensor([1.1, 1.1]))
    torch.testing.assert_close(losses_N, torch.tensor([-1.1 * 0.5, -1.1 * 2.0]))  # the second would weigh e squared
    assert seen["tis_capped"].tolist() == [0.0, 1.0]


def test_kl_and_entropy_are_added_to_each_token() -> None:
    one = row([-1.0], advantage=0.0)
    start = Predictions(torch.tensor([-1.0 + math.log(2)]))
    entropy_N = torch.tensor([0.3], requires_grad=True)
    made = prepared([one], start, kl=0.5, kl_unbiased=False, entropy=0.1)
    losses_N, seen = made.token_losses(make_batch([one]), Predictions(torch.tensor([-1.0]), entropy_N))
    kl = 2 - math.log(2) - 1
    torch.testing.assert_close(losses_N.detach(), torch.tensor([0.5 * kl - 0.03]))
    torch.testing.assert_close(seen["kl"], torch.tensor([kl]))
    torch.testing.assert_close(torch.autograd.grad(losses_N.sum(), entropy_N)[0], torch.tensor([-0.1]))
    assert made.entropy_gradient


def test_ppo_learns_values_and_takes_its_advantages_from_them() -> None:
    one = row([-1.0, -1.0], advantage=9.0)
    start = Predictions(torch.tensor([-1.0, -1.0]), None, torch.tensor([0.25, 0.5]))
    settings = {"algorithm": "ppo", "value": {"weight": 2.0, "decay": 1.0, "clip": 0.1}}
    made = prepared([one], start, **settings)
    predictions = Predictions(torch.tensor([-1.0, -1.0]), None, torch.tensor([0.25, 1.0]))
    losses_N, seen = made.token_losses(make_batch([one]), predictions)
    # Returns are 1, so that advantages are 0.75 and 0.5; of the second value's jump to 1.0 only 0.6 counts.
    torch.testing.assert_close(seen["value_loss"], torch.tensor([0.75**2 / 2, 0.4**2 / 2]))
    torch.testing.assert_close(losses_N, torch.tensor([-0.75, -0.5]) + 2 * seen["value_loss"])


def test_a_model_without_values_or_entropies_is_refused_what_needs_them() -> None:
    plain = Predictions(torch.tensor([-1.0]))
    with pytest.raises(ConfigError, match="values"):
        prepared([row([-1.0])], plain, algorithm="ppo")
    with pytest.raises(ConfigError, match="entrop"):
        objective(entropy=0.1).token_losses(make_batch([row([-1.0])]), plain)


def test_a_turn_that_trainer_and_sampler_disagree_on_is_named_and_its_row_refused() -> None:
    rows = [row([-1.0, -1.0], name="good"), row([-1.0, -1.0], name="bad"), row([-1.0], name="broken")]
    batch = make_batch(rows)
    logprobs_N = torch.tensor([-1.1, -0.9, -1.0, -1.5, math.nan])
    found = sampler_mismatches(rows, logprobs_N, batch.sampler_N, batch.rows_N, batch.turns_N, max_gap=0.2)
    assert [(one.trajectory, one.turn, one.reason) for one in found.values()] == [
        ("bad", 1, Reason.SAMPLER_GAP),
        ("broken", 0, Reason.SAMPLER_GAP),
    ]
    assert list(found) == rows[1:]
    assert "0.5 nats" in found[rows[1]].why


def test_rows_over_the_allowed_gap_are_refused_before_the_first_step() -> None:
    good, bad = row([-1.0]), row([-2.0], name="bad")
    made = objective(max_sampler_gap=0.1)
    refused = made.prepare([good, bad], said(Predictions(torch.tensor([-1.05, -1.05]))))
    assert list(refused) == [bad]


def test_a_step_tells_quantiles_and_both_sides_of_the_clip() -> None:
    ratio_N = torch.arange(101) / 50
    figures = step_figures(
        {
            "logprob": torch.full((101,), -1.0),
            "ratio": ratio_N,
            "clipped_low": (ratio_N < 0.2).float(),
            "clipped_high": (ratio_N > 1.9).float(),
            "gap": torch.full((101,), 0.25),
        }
    )
    assert figures["ratio_quantiles"] == pytest.approx((0.02, 1.0, 1.98))
    assert (figures["clip_share_low"], figures["clip_share_high"]) == pytest.approx((10 / 101, 5 / 101))
    assert figures["clip_share"] == pytest.approx(15 / 101)
    assert (figures["sampler_gap"], figures["entropy"], figures["tis_capped_share"]) == (0.25, None, None)
