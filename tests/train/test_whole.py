"""Updates of all weights, and updates that compute in bfloat16."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from patchgym.errors import ConfigError, PrerequisiteError
from patchgym.policy.models import load_model, read_checkpoint
from patchgym.records import Trajectory
from patchgym.train import PolicyGradientSettings, SftSettings, TokenRow, grpo
from patchgym.train.loading import load_adapted
from patchgym.train.losses import Predictions
from patchgym.train.model import AdaptedModel
from patchgym.train.packed import PackedRows, backward, predict
from tests.train.tiny import BAD, GOOD, PROMPT, RL, SEEN, answer_logprob, full_logprobs, published

pytestmark = pytest.mark.train
WHOLE = RL.model_copy(update={"adapter": "none", "learning_rate": 1e-5})
ROWS = [
    TokenRow(
        (*PROMPT, *answer, *SEEN, *answer), (0,) * 4 + (1,) * 3 + (0,) * 3 + (1,) * 3, (0.0,) * 13, (0,) * 13, name, "g"
    )
    for name, answer in (("a", GOOD), ("b", BAD))
]


def summed(numbers_M: torch.Tensor, seen: Predictions) -> torch.Tensor:
    return (seen.logprobs_N * (1.0 + numbers_M)).sum()


def whole(model_dir: Path, cache: Path, **changes: object) -> AdaptedModel:
    return load_adapted(str(model_dir), WHOLE.model_copy(update=changes), cache)


def test_gradients_of_all_weights_are_those_of_rows_read_one_by_one(model_dir: Path, cache: Path) -> None:
    model = whole(model_dir, cache)
    parts = [full_logprobs(model.network, row.ids)[torch.tensor(row.trainable[1:]).bool()] for row in ROWS]
    wanted = torch.autograd.grad((torch.cat(parts) * torch.arange(1.0, 13.0)).sum(), model.parameters())
    for recompute in (False, True):
        backward(model, PackedRows(ROWS, 5, split=True), summed, recompute=recompute)
        for parameter, slope in zip(model.parameters(), wanted, strict=True):
            assert parameter.grad is not None
            assert (parameter.grad - slope).abs().max() <= 1e-5 * slope.abs().max()
            parameter.grad = None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_checkpoint_of_all_weights_is_loaded_by_transformers_and_by_the_next_update(
    dtype: str, pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    settings = WHOLE.model_copy(update={"dtype": dtype})
    tasks = {"one": ("n1",)}
    first = grpo(pair, start=str(model_dir), out=tmp_path, settings=settings, cache=cache, trained_on=tasks)
    place = published(tmp_path, first)
    info = read_checkpoint(place)
    assert (info.weights, info.base, info.trained_on) == ("full", str(model_dir), tasks)
    plain = AutoModelForCausalLM.from_pretrained(place / "model", dtype=torch.float32)
    assert AutoTokenizer.from_pretrained(place / "model").eos_token == "<|im_end|>"
    loaded = load_model(str(place), cache=cache)
    ids = [*PROMPT, *GOOD]
    torch.testing.assert_close(full_logprobs(plain, ids), full_logprobs(loaded.model, ids), atol=0, rtol=0)
    assert loaded.version == first.version
    assert answer_logprob(place, cache, GOOD) > answer_logprob(model_dir, cache, GOOD)
    assert answer_logprob(place, cache, BAD) < answer_logprob(model_dir, cache, BAD)

    second = grpo(pair, start=str(place), out=tmp_path, settings=settings, cache=cache, trained_on={})
    later = read_checkpoint(published(tmp_path, second))
    assert (later.step, later.parent, later.base, later.trained_on) == (2, first.version, str(model_dir), tasks)


def test_masters_keep_steps_that_bfloat16_would_lose(model_dir: Path, cache: Path) -> None:
    model = whole(model_dir, cache, dtype="bfloat16")
    (name, master), *_ = (model.masters.parameters if model.masters else {}).items()
    weight = dict(model.network.named_parameters())[name]
    assert (weight.dtype, master.dtype) == (torch.bfloat16, torch.float32)
    before, start = weight.clone(), master.detach().clone()
    for _ in range(2000):
        with torch.no_grad():
            master.add_(1e-5)
        model.moved()
    assert not torch.equal(weight, before)
    torch.testing.assert_close(weight.float(), start + 0.02, atol=3e-3, rtol=0)
    with torch.no_grad():
        stuck = before.clone()
        for _ in range(2000):
            stuck.add_(1e-5)
    assert (stuck.float() - before.float()).abs().median() < 0.01


def test_gradients_in_bfloat16_are_summed_in_float32_and_near_those_in_float32(model_dir: Path, cache: Path) -> None:
    found = []
    for dtype in ("float32", "bfloat16"):
        model = whole(model_dir, cache, dtype=dtype)
        backward(model, PackedRows(ROWS, 5, split=True), summed)
        assert all(part.grad is not None and part.grad.dtype == torch.float32 for part in model.parameters())
        found.append(torch.cat([part.grad.flatten() for part in model.parameters() if part.grad is not None]))
    assert torch.cosine_similarity(found[0], found[1], dim=0) > 0.99


def test_an_adapter_stays_in_float32_on_a_base_in_bfloat16(model_dir: Path, cache: Path) -> None:
    model = load_adapted(str(model_dir), RL.model_copy(update={"dtype": "bfloat16"}), cache)
    assert {part.dtype for part in model.parameters()} == {torch.float32}
    assert model.head.weight.dtype == torch.bfloat16
    exact = load_adapted(str(model_dir), RL, cache)
    ours_N, wanted_N = (predict(one, PackedRows(ROWS, 64)).logprobs_N for one in (model, exact))
    torch.testing.assert_close(ours_N, wanted_N, atol=0.1, rtol=0)


def test_whole_weights_diverge_from_the_base_that_they_began_as(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    settings = WHOLE.model_copy(update={"kl": 0.1})
    first = grpo(pair, start=str(model_dir), out=tmp_path, settings=settings, cache=cache, trained_on={})
    assert first.steps[0].kl == pytest.approx(0.0, abs=1e-9)
    place = published(tmp_path, first)
    second = grpo(pair, start=str(place), out=tmp_path, settings=settings, cache=cache, trained_on={})
    assert second.steps[0].kl is not None
    assert second.steps[0].kl > 1e-8


def test_training_all_weights_goes_on_from_an_adapter_and_no_adapter_from_all_weights(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    gentle = RL.model_copy(update={"learning_rate": 1e-4})
    first = grpo(pair, start=str(model_dir), out=tmp_path, settings=gentle, cache=cache, trained_on={})
    warm = published(tmp_path, first)
    model = load_adapted(str(warm), WHOLE, cache)
    torch.testing.assert_close(
        full_logprobs(model.network, ROWS[0].ids), full_logprobs(load_model(str(warm), cache=cache).model, ROWS[0].ids)
    )
    report = grpo(pair, start=str(warm), out=tmp_path, settings=WHOLE, cache=cache, trained_on={})
    with pytest.raises(ConfigError, match="cannot go on with an adapter"):
        load_adapted(str(published(tmp_path, report)), RL, cache)


def test_choices_that_contradict_each_other_are_refused(model_dir: Path, cache: Path) -> None:
    with pytest.raises(ConfigError, match="lora_layers"):
        SftSettings(adapter="none", lora_layers=1)
    if not torch.cuda.is_available():
        with pytest.raises(PrerequisiteError, match="CUDA"):
            load_adapted(str(model_dir), SftSettings(device="cuda"), cache)


def test_stored_weights_are_float32_masters(
    pair: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    settings: PolicyGradientSettings = WHOLE.model_copy(update={"dtype": "bfloat16", "learning_rate": 1e-6})
    report = grpo(pair, start=str(model_dir), out=tmp_path, settings=settings, cache=cache, trained_on={})
    stored = load_file(published(tmp_path, report) / "model" / "model.safetensors")
    before = load_file(model_dir / "model.safetensors")
    assert set(stored) == set(before)
    assert {part.dtype for part in stored.values()} == {torch.float32}
    apart = max((stored[name] - part).abs().max().item() for name, part in before.items())
    assert 0 < apart < 2e-6
