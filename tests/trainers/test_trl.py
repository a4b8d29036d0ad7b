"""Our episodes inside TRL's own ``GRPOTrainer``, on the CPU, with a model made on the spot."""

import asyncio
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from patchgym.errors import ConfigError, UsageError
from patchgym.policy.chat import ChatEncoder
from patchgym.records import Sampling
from patchgym.store import RunDirectory
from patchgym.trainers import Generated, GymSettings
from patchgym.trainers.trl import RolloutFunc, _draw, _sampler, _task_id, episode_reward
from tests.policy.tiny import tiny_network, tiny_tokenizer
from tests.policy.vllm_server import vllm_server
from tests.trainers.gyms import task_set
from tests.workshop import here, need_namespaces

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
pytestmark = [pytest.mark.train, pytest.mark.slow]
NEEDS_TRL = pytest.mark.skipif(
    find_spec("trl") is None, reason="SKIPPED LOUDLY: trl is not installed here: pip install 'patchgym[trl]'"
)
CONTEXT, RESPONSE = 6000, 900


def trained(folder: Path, rollout: RolloutFunc, steps: int, generations: int = 2) -> Any:
    """A trainer that has made its steps on the one training task."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    config = GRPOConfig(
        output_dir=str(folder / "out"),
        per_device_train_batch_size=generations,
        num_generations=generations,
        max_completion_length=RESPONSE,
        max_steps=steps,
        learning_rate=1e-2,
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=tiny_network(max_position_embeddings=CONTEXT).train().requires_grad_(True),
        reward_funcs=episode_reward,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": "calc-1"}]),
        processing_class=tiny_tokenizer(),
        rollout_func=rollout,
    )
    trainer.train()
    return trainer


@pytest.fixture
def settings(tmp_path: Path) -> GymSettings:
    need_namespaces()
    rollout = {"max_tokens": 24, "turns": 2}
    return GymSettings.model_validate(
        {"taskset": str(task_set(tmp_path)), "out": str(tmp_path / "run"), "rollout": rollout}
    )


class Watched(RolloutFunc):
    """A rollout function that remembers what it gave, and may change the rewards."""

    def __init__(self, settings: GymSettings, change: Callable[[dict[str, list[Any]]], None]) -> None:
        super().__init__(settings, build=here)
        self._change = change
        self.given: list[dict[str, list[Any]]] = []

    def __call__(self, prompts: Any, trainer: Any) -> dict[str, list[Any]]:
        found = super().__call__(prompts, trainer)
        self._change(found)
        self.given.append(found)
        return found


@NEEDS_TRL
def test_two_steps_are_trained_on_real_episodes(tmp_path: Path, settings: GymSettings) -> None:
    def differ(found: dict[str, list[Any]]) -> None:
        found["reward"] = [0.0, 1.0]  # the model is random: its own rewards are all 0, and teach nothing

    rollout = Watched(settings, differ)
    trainer = trained(tmp_path, rollout, steps=2)
    rollout.close()
    logs = [row for row in trainer.state.log_history if "grad_norm" in row]
    assert len(logs) == 2
    assert all(row["grad_norm"] > 0 for row in logs)
    kept = RunDirectory.read(tmp_path / "run" / "worker-0")
    assert sorted(kept.phases) == ["train-0", "train-1"]
    assert {one.status for one in kept.trajectories} == {"completed"}
    for given in rollout.given:
        for ids, mask, told in zip(given["completion_ids"], given["env_mask"], given["logprobs"], strict=True):
            assert len(ids) == len(mask) == len(told) <= RESPONSE
            assert all((value < 0) == bool(bit) for value, bit in zip(told, mask, strict=True))
            assert 0 < sum(mask) < len(mask)  # two turns, with what was seen between them


@NEEDS_TRL
def test_log_probabilities_are_those_of_the_trainer_s_weights(tmp_path: Path, settings: GymSettings) -> None:
    import torch

    rollout = Watched(settings, lambda found: None)
    trained(tmp_path, rollout, steps=1)
    rollout.close()
    model = tiny_network(max_position_embeddings=CONTEXT)  # as it was when the first call sampled
    given = rollout.given[0]
    ids = [*given["prompt_ids"][0], *given["completion_ids"][0]]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0, :-1].float().log_softmax(-1)
    start = len(given["prompt_ids"][0])
    for place, (bit, told) in enumerate(zip(given["env_mask"][0], given["logprobs"][0], strict=True), start=start):
        if bit:
            assert logits[place - 1, ids[place]].item() == pytest.approx(told, abs=1e-3)


@NEEDS_TRL
def test_a_lost_episode_stays_out_of_its_group_s_baseline(tmp_path: Path, settings: GymSettings) -> None:
    def lose_one(found: dict[str, list[Any]]) -> None:
        found["reward"] = [1.0, 0.0, None]
        found["env_mask"][2] = [0] * len(found["env_mask"][2])

    rollout = Watched(settings, lose_one)
    trainer = trained(tmp_path, rollout, steps=1, generations=3)
    rollout.close()
    good, bad, lost = list(trainer._logs["advantages"])[:3]
    assert lost == 0.0
    assert good == pytest.approx(-bad, rel=1e-6)
    assert good > 0


def fake_trainer(**changes: Any) -> Any:
    """What of a trainer is looked at before anything is sampled."""
    told = {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": None,
        "repetition_penalty": 1.0,
        "model": SimpleNamespace(training=True, config=SimpleNamespace(vocab_size=258)),
        "state": SimpleNamespace(global_step=4),
    }
    return SimpleNamespace(**{**told, **changes})


def test_a_prompt_is_the_id_of_a_task() -> None:
    assert _task_id("calc-1") == _task_id([{"role": "user", "content": "calc-1"}]) == "calc-1"
    with pytest.raises(UsageError, match="names no task"):
        _task_id([{"role": "user", "content": [{"type": "image"}]}])


def test_measuring_and_learning_are_told_apart() -> None:
    model = SimpleNamespace(training=False)
    assert (_draw(fake_trainer()).name, _draw(fake_trainer(model=model)).name) == ("train-4", "eval-4")


def test_a_trainer_that_samples_otherwise_is_refused() -> None:
    with pytest.raises(ConfigError, match="top_k"):
        _draw(fake_trainer(top_k=20))


def test_a_vllm_that_cannot_be_asked_turn_by_turn_is_refused() -> None:
    trainer = fake_trainer(use_vllm=True, vllm_generation=SimpleNamespace())

    async def opened() -> None:
        async with _sampler(trainer, ChatEncoder(tiny_tokenizer()), _draw(trainer)):
            pass

    with pytest.raises(ConfigError, match="turn by turn"):
        asyncio.run(opened())


def test_trl_s_server_is_asked_as_every_vllm() -> None:
    ids = tiny_tokenizer().encode("<|im_start|>user\nfix<|im_end|>\n<|im_start|>assistant\n")

    async def asked(url: str) -> Generated:
        client = SimpleNamespace(base_url=url.removesuffix("/v1"), model="tiny")
        trainer = fake_trainer(use_vllm=True, vllm_generation=SimpleNamespace(vllm_client=client))
        async with _sampler(trainer, ChatEncoder(tiny_tokenizer()), _draw(trainer)) as generator:
            assert generator.version == "trl@step-4"
            return await generator.generate("session", ids, Sampling(max_tokens=5, seed=1))

    with vllm_server() as fake:
        found = asyncio.run(asked(fake.url))
    assert fake.sampled()[0]["prompt"] == ids
    assert found.logprobs is not None
    assert 0 < len(found.ids) == len(found.logprobs) <= 5


def test_rewards_that_were_not_measured_stay_so() -> None:
    assert episode_reward([], [1.0, None]) == [1.0, None]
