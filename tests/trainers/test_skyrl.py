"""Our generator held against the installed SkyRL, with a client in place of its GPU engines.

SkyRL 0.3.0 cannot be imported on Python 3.11 (pydantic refuses its ``typing.TypedDict``). What it says in its source is
then read instead: the keys of its types, and its own check of what a generator returns, run by itself.
"""

import ast
import asyncio
import logging
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.errors import ConfigError, UsageError
from patchgym.policy.chat import ChatEncoder
from patchgym.records import Sampling
from patchgym.trainers import EpisodeRow, GymSettings
from patchgym.trainers.skyrl import PatchgymGenerator, neutral_rewards
from tests.policy.tiny import tiny_tokenizer
from tests.records_for_tests import make_trajectory
from tests.trainers.gyms import GIVES_UP, SOLVES, Says, logprob, task_set
from tests.workshop import here, need_namespaces

pytestmark = pytest.mark.train
TOKENIZER = tiny_tokenizer()
NEEDS_SKYRL = pytest.mark.skipif(
    find_spec("skyrl") is None, reason="SKIPPED LOUDLY: skyrl is not installed here, so its contract was not tested"
)
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "max_tokens": 4000, "logprobs": 1}


class Client:
    """Answers like SkyRL's ``InferenceEngineInterface``, with what scripts say."""

    def __init__(self, *scripts: Sequence[str], lost: int = 0) -> None:
        self._says = Says(ChatEncoder(TOKENIZER), *scripts, lost=lost)
        self.asked: list[Mapping[str, Any]] = []

    async def generate(self, input_batch: Mapping[str, Any], model: str | None = None) -> dict[str, Any]:
        self.asked.append({**input_batch, "model": model})
        (ids,), (session,) = input_batch["prompt_token_ids"], input_batch["session_ids"]
        done = await self._says.generate(session, ids, Sampling())
        return {
            "responses": [""],
            "response_ids": [list(done.ids)],
            "stop_reasons": ["stop"],
            "response_logprobs": [list(done.logprobs or ())],
        }


def generated(
    folder: Path, client: Client, names: Sequence[str] = ("calc-1", "calc-1"), phase: str = "train", **changes: Any
) -> dict[str, Any]:
    """What the generator gives for rows of these tasks."""
    need_namespaces()
    settings = {"taskset": str(task_set(folder)), "out": str(folder / "run"), "retries": 0, **changes}
    config = SimpleNamespace(max_input_length=4000, sampling_params=None)
    made = PatchgymGenerator(
        GymSettings.model_validate(settings),
        generator_cfg=config,
        inference_engine_client=client,
        tokenizer=TOKENIZER,
        policy_model_name="base",
        build=here,
    )
    batch = {
        "prompts": [[] for _ in names],
        "env_classes": ["patchgym"] * len(names),
        "env_extras": [{"task_id": name} for name in names],
        "sampling_params": dict(SAMPLING),
        "trajectory_ids": [f"{name}_{at}" for at, name in enumerate(names)],
        "batch_metadata": SimpleNamespace(global_step=2, training_phase=phase),
    }
    try:
        return asyncio.run(made.generate(batch))
    finally:
        made.close()


def source_of(module: str) -> ast.Module:
    """A module of the installed SkyRL, read and not imported."""
    place = find_spec("skyrl")
    assert place is not None
    assert place.origin is not None
    path = Path(place.origin).parent.joinpath(*module.split(".")).with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def keys_of(tree: ast.Module, name: str) -> set[str]:
    """The fields of a class."""
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    return {
        node.target.id for node in found.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def skyrl_s_check(output: Mapping[str, Any], prompts: int) -> None:
    """SkyRL's own ``validate_generator_output``."""
    (found,) = (
        node
        for node in source_of("train.utils.trainer_utils").body
        if isinstance(node, ast.FunctionDef) and node.name == "validate_generator_output"
    )
    names: dict[str, Any] = {"np": numpy, "logger": logging.getLogger(__name__), "GeneratorOutput": dict}
    exec(compile(ast.Module([found], []), "skyrl", "exec"), names)
    names["validate_generator_output"](prompts, output)


@NEEDS_SKYRL
def test_the_output_is_one_that_skyrl_s_own_check_takes(tmp_path: Path) -> None:
    found = generated(tmp_path, Client(SOLVES, GIVES_UP))
    assert set(found) == keys_of(source_of("train.generators.base"), "GeneratorOutput")
    skyrl_s_check(found, 2)


@NEEDS_SKYRL
def test_what_is_read_of_a_batch_is_in_it() -> None:
    asked = {"prompts", "env_extras", "sampling_params", "trajectory_ids", "batch_metadata"}
    base = source_of("train.generators.base")
    assert asked <= keys_of(base, "GeneratorInput")
    assert {"global_step", "training_phase"} == keys_of(base, "BatchMetadata")


@NEEDS_SKYRL
def test_the_engine_is_asked_in_skyrl_s_words(tmp_path: Path) -> None:
    client = Client(GIVES_UP)
    generated(tmp_path, client, ["calc-1"])
    known = keys_of(source_of("backends.skyrl_train.inference_servers.base"), "InferenceEngineInput")
    assert {key for asked in client.asked for key in asked} - {"model"} <= known
    assert {asked["model"] for asked in client.asked} == {"base"}


def test_episodes_come_back_in_the_order_of_their_prompts(tmp_path: Path) -> None:
    found = generated(tmp_path, Client(GIVES_UP), ["calc-1", "calc-1", "calc-1"])
    assert found["trajectory_ids"] == ["calc-1_0", "calc-1_1", "calc-1_2"]
    assert found["rewards"] == [0.0, 0.0, 0.0]
    assert len(found["trajectory_generation_times"]) == 3


def test_masks_mark_what_was_sampled_and_log_probabilities_stand_there_alone(tmp_path: Path) -> None:
    found = generated(tmp_path, Client(SOLVES), ["calc-1"])
    encoder = ChatEncoder(TOKENIZER)
    (ids,), (mask,), (told,) = found["response_ids"], found["loss_masks"], found["rollout_logprobs"]
    said = [token for text in SOLVES for token in encoder.encode_answer(text)]
    assert [token for token, bit in zip(ids, mask, strict=True) if bit] == said
    assert told == [logprob(token) if bit else 0.0 for token, bit in zip(ids, mask, strict=True)]


def test_a_lost_episode_trains_nothing_and_does_not_move_the_mean(tmp_path: Path) -> None:
    found = generated(tmp_path, Client(SOLVES, lost=1))
    (lost,) = (at for at, mask in enumerate(found["loss_masks"]) if not any(mask))
    assert found["rewards"][lost] == found["rewards"][1 - lost] > 0.9
    assert found["rollout_metrics"]["patchgym/lost"] == 1.0
    assert found["rollout_metrics"]["patchgym/resolved"] == 1.0


class Away(Client):
    """A server that is not there."""

    async def generate(self, input_batch: Mapping[str, Any], model: str | None = None) -> dict[str, Any]:
        raise ConnectionResetError("no server")


def test_a_server_that_is_away_loses_episodes_and_not_the_step(tmp_path: Path) -> None:
    found = generated(tmp_path, Away(), retries=1)
    assert not any(map(any, found["loss_masks"]))
    assert found["rollout_metrics"] == {"patchgym/lost": 2.0}


def test_held_out_tasks_are_for_measuring(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="held out"):
        generated(tmp_path, Client(GIVES_UP), ["calc-2"])


def test_held_out_tasks_are_measured_on(tmp_path: Path) -> None:
    assert generated(tmp_path, Client(GIVES_UP), ["calc-2"], phase="eval")["rewards"] == [0.0]


def test_a_row_without_a_task_of_the_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="calc-9"):
        generated(tmp_path, Client(GIVES_UP), ["calc-9"])


def test_sampling_that_cannot_be_recorded_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SAMPLING, "min_p", 0.05)
    with pytest.raises(ConfigError, match="min_p"):
        generated(tmp_path, Client(GIVES_UP))


def row(group: int, reward: float | None) -> EpisodeRow:
    one = make_trajectory(task_id=f"t{group}")
    return EpisodeRow((1,), (1,), (0,), None, reward, one.model_copy(update={"group_id": f"g{group}"}))


rewards = st.none() | st.floats(0, 1, allow_nan=False)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), rewards), min_size=1, max_size=12))
def test_the_mean_of_a_group_is_that_of_the_rewards_that_were_measured(
    members: list[tuple[int, float | None]],
) -> None:
    found = neutral_rewards([row(group, reward) for group, reward in members])
    for group in {group for group, _ in members}:
        filled = [value for value, (of, _) in zip(found, members, strict=True) if of == group]
        measured = [reward for of, reward in members if of == group and reward is not None]
        wanted = sum(measured) / len(measured) if measured else 0.0
        assert sum(filled) / len(filled) == pytest.approx(wanted)
