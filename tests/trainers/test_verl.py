"""Our agent loop held against the installed verl, with a client in place of its GPU server."""

import asyncio
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from patchgym.errors import ConfigError, EndpointError, UsageError
from patchgym.policy.chat import ChatEncoder
from patchgym.records import Environment, Sampling
from patchgym.store import RunDirectory
from tests.policy.tiny import tiny_tokenizer
from tests.trainers.gyms import GIVES_UP, SOLVES, Says, logprob, task_set
from tests.workshop import here, need_namespaces

if find_spec("verl") is None:
    pytest.skip(
        "SKIPPED LOUDLY: verl is not installed here, so its contract was not tested: docs/trainers.md says how",
        allow_module_level=True,
    )

import hydra
from omegaconf import OmegaConf
from ray.exceptions import RayError
from verl.experimental.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
from verl.workers.rollout.replica import TokenOutput

from patchgym.trainers import verl as ours

pytestmark = pytest.mark.train
TOKENIZER = tiny_tokenizer()
RECIPE = Path(ours.__file__).with_name("verl_agent.yaml")
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}


class HereLoop(ours.PatchgymAgentLoop):
    """Tests need no download: the environment is this interpreter's."""

    build: Callable[[Environment], Path] = staticmethod(here)


class Client:
    """Answers like verl's ``LLMServerClient``, with what a script says."""

    def __init__(self, *scripts: Any, lost: int = 0, logged: bool = True, step: int = 5) -> None:
        self._says, self._logged, self._step = Says(ChatEncoder(TOKENIZER), *scripts, lost=lost), logged, step
        self.asked: list[dict[str, Any]] = []

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> TokenOutput:
        self.asked.append({"request_id": request_id, "prompt_ids": prompt_ids, **sampling_params})
        done = await self._says.generate(request_id, prompt_ids, Sampling())
        steps = {"min_global_steps": self._step, "max_global_steps": self._step, "global_steps": self._step}
        logprobs = list(done.logprobs or ()) if self._logged else None
        return TokenOutput(token_ids=list(done.ids), log_probs=logprobs, stop_reason="completed", extra_fields=steps)


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The recipe that comes with patchgym, over a task set of the test's."""
    need_namespaces()
    monkeypatch.setenv("PATCHGYM_TASKSET", str(task_set(tmp_path)))
    monkeypatch.setenv("PATCHGYM_RUN", str(tmp_path / "run"))
    (found,) = OmegaConf.load(RECIPE)
    found._target_ = f"{__name__}.HereLoop"
    yield found
    for gym, _ in ours._GYMS.values():
        gym.close()
    ours._GYMS.clear()


def loop_of(recipe: Any, client: Client, **lengths: int) -> Any:
    """The agent loop as verl's worker makes it."""
    rollout = {"prompt_length": 4000, "response_length": 4000, **lengths}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": {}})
    return hydra.utils.instantiate(
        config=recipe,
        trainer_config=DictConfigWrap(config=config),
        server_manager=client,
        tokenizer=TOKENIZER,
        processor=None,
        hf_model_type="llama",
        dataset_cls=object,
        data_config=DictConfigWrap(config.data),
        tools=ToolListWrap([]),
    )


def run(recipe: Any, client: Client, row: dict[str, Any] | None = None, **sampling: Any) -> AgentLoopOutput:
    """One episode."""
    told = {"task_id": "calc-1", "global_steps": 5, "raw_prompt": [], **(row or {})}

    async def played() -> Any:
        return await loop_of(recipe, client).run({**SAMPLING, **sampling}, **told)

    return asyncio.run(played())


def test_an_episode_becomes_an_agent_loop_output(recipe: Any) -> None:
    found = run(recipe, Client(SOLVES))
    assert isinstance(found, AgentLoopOutput)
    assert found.reward_score is not None
    assert found.reward_score > 0.9
    assert len(found.response_ids) == len(found.response_mask) == len(found.response_logprobs or ())
    assert (found.num_turns, found.extra_fields["stop"]) == (4, "submitted")


def test_ids_are_those_of_the_server_and_marked_where_it_sampled(recipe: Any) -> None:
    client = Client(SOLVES)
    found = run(recipe, client)
    encoder = ChatEncoder(TOKENIZER)
    said = [token for text in SOLVES for token in encoder.encode_answer(text)]
    assert [token for token, bit in zip(found.response_ids, found.response_mask, strict=True) if bit] == said
    assert found.prompt_ids == client.asked[0]["prompt_ids"]
    last = client.asked[-1]["prompt_ids"]
    assert [*found.prompt_ids, *found.response_ids][: len(last)] == last
    told = zip(found.response_ids, found.response_mask, found.response_logprobs or (), strict=True)
    assert all(value == pytest.approx(logprob(token) if bit else 0.0) for token, bit, value in told)


def test_turns_of_an_episode_are_asked_for_by_one_request_id(recipe: Any) -> None:
    client = Client(SOLVES)
    run(recipe, client)
    assert len({asked["request_id"] for asked in client.asked}) == 1
    assert all(asked["stop_token_ids"] == sorted(ChatEncoder(TOKENIZER).stop_ids) for asked in client.asked)


def test_what_verl_s_queue_is_given_has_the_reward_at_its_end(recipe: Any) -> None:
    found = run(recipe, Client(GIVES_UP))
    field = found.as_dict()
    assert field["rm_scores"].sum().item() == found.reward_score == 0.0
    assert field["extra_fields"]["min_global_steps"] == field["extra_fields"]["max_global_steps"] == 5
    assert field["rollout_log_probs"].shape == field["responses"].shape == field["response_mask"].shape


def test_the_weights_that_sampled_are_named_by_their_step(recipe: Any, tmp_path: Path) -> None:
    run(recipe, Client(GIVES_UP, step=7))
    (worker,) = (tmp_path / "run").iterdir()
    (kept,) = RunDirectory.read(worker).trajectories
    assert {step.policy_version for step in kept.steps} == {"verl@step-7"}


def test_a_server_that_logs_nothing_leaves_log_probabilities_unsaid(recipe: Any) -> None:
    assert run(recipe, Client(GIVES_UP, logged=False), logprobs=False).response_logprobs is None


def test_a_lost_episode_is_made_again(recipe: Any) -> None:
    assert (run(recipe, Client(SOLVES, lost=1)).reward_score or 0.0) > 0.9


def test_an_episode_that_is_lost_to_the_end_fails_so_that_verl_trains_the_group_without_it(recipe: Any) -> None:
    with pytest.raises(EndpointError, match="lost the episode"):
        run(recipe, Client(SOLVES, lost=9))


class Away(Client):
    """A server whose actor died."""

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> TokenOutput:
        raise RayError("the actor died")


def test_a_server_that_died_is_infrastructure_s_fault(recipe: Any, tmp_path: Path) -> None:
    with pytest.raises(EndpointError, match="lost the episode"):
        run(recipe, Away())
    (worker,) = (tmp_path / "run").iterdir()
    assert {one.status for one in RunDirectory.read(worker).trajectories} == {"infra_error"}


def test_verl_s_baseline_is_over_the_sessions_that_are_there() -> None:
    utils = pytest.importorskip("verl.trainer.ppo.v1.utils", reason="SKIPPED LOUDLY: verl's V1 trainer needs more")
    import numpy
    import torch
    from verl import DataProto

    mask = torch.ones(3, 2, dtype=torch.long)
    rewards = torch.tensor([[0.0, 1.0], [0.0, 0.0], [0.0, 0.5]])
    data = DataProto.from_dict(
        tensors={"response_mask": mask, "token_level_rewards": rewards},
        non_tensors={"uid": numpy.array(["u"] * 3, dtype=object)},
    )
    keys = ["u_0_0", "u_2_0", "u_3_0"]  # the session 1 of four was lost
    done = utils.compute_advantage_for_multi_trajectories(
        data, keys, adv_estimator="grpo", norm_adv_by_std_in_grpo=False
    )
    assert done.batch["advantages"][:, 0].tolist() == pytest.approx([0.5, -0.5, 0.0])


def test_an_unknown_key_of_the_recipe_is_named(recipe: Any) -> None:
    recipe.gym.retires = 3
    with pytest.raises(Exception, match="retires") as caught:
        loop_of(recipe, Client(SOLVES))
    assert isinstance(caught.value.__cause__ or caught.value, ConfigError)


@pytest.mark.parametrize("row", [{"task_id": "calc-9"}, {"task_id": None}])
def test_a_row_without_a_task_of_the_set_is_refused(recipe: Any, row: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        run(recipe, Client(SOLVES), row)


def test_a_held_out_task_is_tried_to_measure(recipe: Any, tmp_path: Path) -> None:
    run(recipe, Client(GIVES_UP), {"task_id": "calc-2"})
    (worker,) = (tmp_path / "run").iterdir()
    assert RunDirectory.read(worker).ids == ["eval-5.calc-2.0"]


def test_a_prompt_over_verl_s_length_is_said_and_not_cut(recipe: Any) -> None:
    with pytest.raises(ConfigError, match="prompts may be"):
        asyncio.run(
            loop_of(recipe, Client(SOLVES), prompt_length=50).run(dict(SAMPLING), task_id="calc-1", raw_prompt=[])
        )


def test_a_response_never_grows_over_verl_s_length(recipe: Any) -> None:
    client = Client(GIVES_UP)
    found = asyncio.run(
        loop_of(recipe, client, response_length=120).run(dict(SAMPLING), task_id="calc-1", raw_prompt=[])
    )
    assert len(found.response_ids) <= 120
    assert found.extra_fields["stop"] == "context_limit"


def test_every_key_of_the_launch_command_is_one_of_verl_s() -> None:
    page = Path(__file__).parents[2] / "docs" / "trainers.md"
    command = page.read_text(encoding="utf-8").partition("verl.trainer.main_ppo")[2].partition("```")[0]
    keys = [word.partition("=")[0] for word in command.split() if "=" in word and not word.startswith("+")]
    assert len(keys) > 8
    config = OmegaConf.load(Path(str(find_spec("verl").origin)).parent / "trainer/config/_generated_ppo_trainer.yaml")  # type: ignore[union-attr]
    for key in keys:
        assert OmegaConf.select(config, key, default=os) is not os, key
