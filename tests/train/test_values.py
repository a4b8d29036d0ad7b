"""The value head: what PPO compares rewards with."""

from pathlib import Path

import pytest
import torch

from patchgym.errors import DataError
from patchgym.policy.models import VALUE_HEAD
from patchgym.records import Trajectory
from patchgym.train import PolicyGradientSettings, TokenRow, grpo
from patchgym.train.loading import load_adapted
from patchgym.train.losses import Predictions
from patchgym.train.model import AdaptedModel
from patchgym.train.packed import PackedRows, backward, by_rows, predict
from patchgym.train.report import ValueSettings
from tests.train.tiny import BAD, GOOD, PROMPT, published

pytestmark = pytest.mark.train
PPO = PolicyGradientSettings(algorithm="ppo", learning_rate=1e-2, lora_rank=4, max_row_tokens=64)
ROWS = [
    TokenRow((*PROMPT, *answer), (0,) * 4 + (1,) * 3, (0.0,) * 7, (0,) * 7, name, "g")
    for name, answer in (("a", GOOD), ("b", BAD))
]


def valued(model_dir: Path, cache: Path, into_body: bool = True) -> AdaptedModel:
    """The tiny model with an adapter and a value head that already do something."""
    settings = PPO.model_copy(update={"value": ValueSettings(into_body=into_body)})
    model = load_adapted(str(model_dir), settings, cache)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return model


def flat_values(model: AdaptedModel) -> torch.Tensor:
    """Every row on its own, through the whole body."""
    assert model.value_head is not None
    parts = []
    for row in ROWS:
        hidden_TD = model.read(torch.tensor([row.ids[:-1]]))[0]
        parts.append(model.value_head(hidden_TD)[torch.tensor(row.trainable[1:]).bool(), 0])
    return torch.cat(parts)


def squared(numbers_M: torch.Tensor, seen: Predictions) -> torch.Tensor:
    assert seen.values_N is not None
    return ((seen.values_N - 1.0 - numbers_M) ** 2).sum()


def test_a_new_value_head_says_nothing(model_dir: Path, cache: Path) -> None:
    values_N = predict(load_adapted(str(model_dir), PPO, cache), PackedRows(ROWS, 64)).values_N
    assert values_N is not None
    assert values_N.tolist() == [0.0] * 6


def test_models_of_other_algorithms_have_no_values(model_dir: Path, cache: Path) -> None:
    model = load_adapted(str(model_dir), PolicyGradientSettings(), cache)
    assert model.value_head is None
    assert predict(model, PackedRows(ROWS, 64)).values_N is None


@pytest.mark.parametrize("chunk", [64, 4])
@pytest.mark.parametrize("into_body", [True, False])
def test_values_and_their_gradients_are_those_of_rows_read_one_by_one(
    into_body: bool, chunk: int, model_dir: Path, cache: Path
) -> None:
    model = valued(model_dir, cache, into_body)
    packed = PackedRows(ROWS, chunk, split=True)
    wanted_N = flat_values(model)
    told_N = predict(model, packed).values_N
    assert told_N is not None
    torch.testing.assert_close(told_N, wanted_N.detach(), atol=1e-5, rtol=0)
    slopes = torch.autograd.grad(squared(torch.arange(6), Predictions(wanted_N, None, wanted_N)), model.parameters())
    backward(model, packed, squared)
    *body, weight, bias = zip(model.parameters(), slopes, strict=True)
    for parameter, slope in (*(body if into_body else ()), weight, bias):
        assert parameter.grad is not None
        assert (parameter.grad - slope).abs().max() <= 1e-5 * slope.abs().max()
    if not into_body:
        assert all(parameter.grad is None or not parameter.grad.any() for parameter, _ in body)


def test_values_take_part_in_losses_in_which_the_ids_of_a_row_meet(model_dir: Path, cache: Path) -> None:
    model = valued(model_dir, cache)
    packed = PackedRows(ROWS, 4, split=True)
    wanted = backward(model, packed, squared)
    slopes = [part.grad.clone() for part in model.parameters() if part.grad is not None]
    for part in model.parameters():
        part.grad = None
    loss, summand = by_rows(squared, predict(model, packed))
    assert loss == pytest.approx(wanted, rel=1e-5)
    backward(model, packed, summand)
    for part, slope in zip(model.parameters(), slopes, strict=True):
        assert part.grad is not None
        assert (part.grad - slope).abs().max() <= 1e-5 * slope.abs().max()


def test_ppo_learns_the_values_and_publishes_them(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    settings = PPO.model_copy(update={"passes": 12, "learning_rate": 1e-2, "value": ValueSettings(clip=2.0)})
    report = grpo(pair, start=str(model_dir), out=tmp_path, settings=settings, cache=cache, trained_on={})
    first, last = report.steps[0].value_loss, report.steps[-1].value_loss
    assert first is not None
    assert last is not None
    assert last < 0.5 * first
    place = published(tmp_path, report)
    again = load_adapted(str(place), settings, cache)
    assert again.value_head is not None
    assert again.value_head.weight.any()
    told_N = predict(again, PackedRows(ROWS, 64)).values_N
    assert told_N is not None
    assert told_N[2] > told_N[5]  # what was rewarded is worth more


def test_a_value_head_of_another_model_is_refused(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    place = published(
        tmp_path, grpo(pair, start=str(model_dir), out=tmp_path, settings=PPO, cache=cache, trained_on={})
    )
    (place / VALUE_HEAD).write_bytes(b"no weights")
    with pytest.raises(DataError, match="value head"):
        load_adapted(str(place), PPO, cache)
