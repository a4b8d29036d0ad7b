"""The trainer sees the sampler's probabilities: padding, batching and the partial head change nothing."""

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import GraniteConfig, GraniteForCausalLM

from patchgym.errors import ConfigError
from patchgym.train import SftSettings, TokenRow
from patchgym.train.loading import load_adapted
from patchgym.train.losses import Predictions
from patchgym.train.model import AdaptedModel
from patchgym.train.packed import PackedRows, backward, given, predict
from tests.train.tiny import VOCABULARY, full_logprobs

pytestmark = pytest.mark.train


@pytest.fixture(params=[None, 1], ids=["all-layers", "last-layer"])
def model(model_dir: Path, cache: Path, request: pytest.FixtureRequest) -> AdaptedModel:
    """The tiny model with an adapter that already does something."""
    adapted = load_adapted(str(model_dir), SftSettings(lora_rank=2, lora_layers=request.param), cache)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in adapted.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return adapted


def row(length: int, trainable: list[int] | None = None, *, seed: int = 0, temperature: float = 1.0) -> TokenRow:
    draw = random.Random(seed)
    bits = trainable or [0, *(draw.randint(0, 1) for _ in range(length - 2)), 1]
    return TokenRow(
        ids=tuple(draw.randrange(VOCABULARY) for _ in range(length)),
        trainable=tuple(bits),
        logprobs=(0.0,) * length,
        turns=(0,) * length,
        trajectory_id=f"t{seed}",
        group_id="g",
        temperature=temperature,
    )


def logprobs(model: AdaptedModel, rows: list[TokenRow]) -> torch.Tensor:
    return predict(model, PackedRows(rows, 64)).logprobs_N


def summed(numbers_M: torch.Tensor, seen: Predictions) -> torch.Tensor:
    return seen.logprobs_N.sum()


def gradient(model: AdaptedModel, rows: list[TokenRow]) -> list[torch.Tensor]:
    backward(model, PackedRows(rows, 64), summed)
    found = [part.grad for part in model.parameters() if part.grad is not None]
    assert len(found) == len(model.parameters())
    for part in model.parameters():
        part.grad = None
    return found


def test_rows_that_are_read_together_have_the_log_probabilities_of_single_ones(model: AdaptedModel) -> None:
    rows = [row(40, seed=1), row(7, seed=2, temperature=0.5), row(23, seed=3)]
    wanted_N = torch.cat(
        [
            full_logprobs(model.peft_model, one.ids, one.temperature)[torch.tensor(one.trainable[1:]).bool()]
            for one in rows
        ]
    )
    torch.testing.assert_close(logprobs(model, rows), wanted_N, atol=1e-5, rtol=0)


def test_entropies_are_those_of_the_distributions_sampled_from(model: AdaptedModel) -> None:
    one = row(12, seed=9, temperature=0.5)
    logits_TV = model.peft_model(input_ids=torch.tensor([one.ids])).logits[0, :-1] / 0.5
    p_TV = logits_TV.softmax(-1)
    wanted_N = -(p_TV * p_TV.log()).sum(-1)[torch.tensor(one.trainable[1:]).bool()]
    told = predict(model, PackedRows([one], 64))
    torch.testing.assert_close(given(told.entropy_N), wanted_N.detach(), atol=1e-5, rtol=0)


def test_entropies_have_a_gradient_only_where_it_is_asked_for(model: AdaptedModel) -> None:
    asked: list[bool] = []

    def loss(numbers_M: torch.Tensor, seen: Predictions) -> torch.Tensor:
        asked.append(given(seen.entropy_N).requires_grad)
        return seen.logprobs_N.sum()

    for entropy_gradient in (False, True):
        backward(model, PackedRows([row(12, seed=9)], 64), loss, entropy_gradient=entropy_gradient)
    assert asked == [False, True]


def test_gradients_are_those_of_a_masked_loss_over_all_logits(model: AdaptedModel) -> None:
    rows = [row(30, seed=4), row(12, seed=5)]
    total = torch.zeros(())
    for one in rows:
        total = total + (full_logprobs(model.peft_model, one.ids) * torch.tensor(one.trainable[1:])).sum()
    for ours, wanted in zip(gradient(model, rows), torch.autograd.grad(total, model.parameters()), strict=True):
        torch.testing.assert_close(ours, wanted, atol=1e-4, rtol=1e-4)


def test_an_id_that_is_not_trained_has_no_gradient_as_a_target(model: AdaptedModel) -> None:
    """The last id of a row is a target and nothing else: what it is matters only where it may be trained."""
    observed = row(8, [0, 0, 1, 1, 0, 0, 0, 0], seed=6)
    answered = row(8, [0, 0, 1, 1, 0, 0, 0, 1], seed=6)

    def other_end(one: TokenRow) -> TokenRow:
        return replace(one, ids=(*one.ids[:-1], (one.ids[-1] + 1) % VOCABULARY))

    def same(one: TokenRow) -> bool:
        pairs = zip(gradient(model, [one]), gradient(model, [other_end(one)]), strict=True)
        return all(torch.equal(left, right) for left, right in pairs)

    assert same(observed)
    assert not same(answered)


def test_only_the_last_layers_are_adapted_when_asked(model_dir: Path, cache: Path) -> None:
    def adapted(layers: int | None) -> set[str]:
        model = load_adapted(str(model_dir), SftSettings(lora_layers=layers), cache)
        trainable = [name for name, part in model.peft_model.named_parameters() if part.requires_grad]
        assert all("lora_" in name for name in trainable)
        return {name.partition(".layers.")[2].partition(".")[0] for name in trainable}

    assert adapted(None) == {"0", "1"}
    assert adapted(1) == {"1"}
    with pytest.raises(ConfigError, match="lora_layers is 3"):
        adapted(3)


def test_a_model_that_scales_its_logits_is_refused(model_dir: Path, cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "scaled"
    shutil.copytree(model_dir, folder)
    config = GraniteConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        logits_scaling=4.0,
        initializer_range=0.2,
    )
    GraniteForCausalLM(config).save_pretrained(folder)
    with pytest.raises(ConfigError, match="more than its head"):
        load_adapted(str(folder), SftSettings(), cache)


def test_a_new_adapter_changes_nothing(model_dir: Path, cache: Path) -> None:
    model = load_adapted(str(model_dir), SftSettings(), cache)
    one = row(20, seed=7)
    ours_N = logprobs(model, [one])
    with model.peft_model.disable_adapter():
        torch.testing.assert_close(logprobs(model, [one]), ours_N, atol=0, rtol=0)
