"""Episodes inside verl: an agent loop for its rollout workers.

It is named in a file that ``actor_rollout_ref.rollout.agent.agent_loop_config_path`` points to
(``verl_agent.yaml`` beside this module is one). Importing this module imports verl. Written against verl 0.9.1.
"""

import atexit
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from ray.exceptions import RayError
from verl.experimental.agent_loop import AgentLoopBase, AgentLoopOutput

from patchgym.config import validated
from patchgym.errors import EndpointError, SandboxError, UsageError
from patchgym.policy.chat import ChatEncoder
from patchgym.records import Environment, Sampling
from patchgym.sandbox.environments import build_environment
from patchgym.trainers.gym import Draw, Gym, GymSettings
from patchgym.trainers.policy import Generated, TokenLimits, TokenPolicy, neutral_sampling
from patchgym.trainers.rows import EpisodeRow, episode_row

_GYMS: dict[str, tuple[Gym, ChatEncoder]] = {}
"""What the episodes of this process share, by their settings: verl makes a new agent loop for each episode."""


class PatchgymAgentLoop(AgentLoopBase):  # type: ignore[misc]  # verl has no types
    """Runs our episode with verl's own server."""

    build: Callable[[Environment], Path] = staticmethod(build_environment)
    """How the environments of tasks are made."""

    def __init__(self, *args: Any, gym: Mapping[str, Any], **told: Any) -> None:
        """``gym`` are the keys of ``GymSettings``; verl gives the rest.

        Raises:
            ConfigError: an unknown key, or a chat template that cannot be used token by token.
            UsageError, PrerequisiteError, DataError: as ``Gym``.
        """
        super().__init__(*args, **told)
        plain: Any = OmegaConf.to_container(OmegaConf.create(gym), resolve=True)
        settings = validated(GymSettings, plain, "of the agent loop")
        self._gym, self._encoder = _shared(settings, self.tokenizer, self.build)
        rollout = self.rollout_config
        self._limits = TokenLimits(
            rollout.get("max_model_len") or rollout.prompt_length + rollout.response_length,
            opening=rollout.prompt_length,
            response=rollout.response_length,
        )

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """One graded episode of the task that the row names in ``task_id``, with the first layer of its reward.

        Raises:
            SandboxError, EndpointError: infrastructure lost the episode, and every repetition of it. verl's V1 trainer
                then trains the group without it.
            UsageError, ConfigError: the row names no task of the set, or the sampling cannot be recorded.
        """
        temperature, top_p = neutral_sampling(sampling_params, "actor_rollout_ref.rollout")
        step = row.get("global_steps")
        draw = Draw(temperature, top_p, step=int(step) if step is not None else None)
        task = self._gym.task(_task_id(row), draw)
        draw = replace(draw, phase="train" if task.split == "train" else "eval")
        server = _Server(self.server_manager, sampling_params, self._encoder.stop_ids)
        found = await self._gym.attempt(task, draw, "verl", lambda session: self._policy(server, session))
        logged = bool(sampling_params.get("logprobs"))
        return _output(episode_row(found, filler=self._encoder.end_of_turn, need_logprobs=logged), server)

    def _policy(self, server: "_Server", session: str) -> TokenPolicy:
        server.begin()
        return TokenPolicy(server, self._encoder, session=session, limits=self._limits)


class _Server:
    """verl's client as a generator. ``steps`` are the first and the last update that the weights came of, where verl
    says so."""

    def __init__(self, client: Any, sampling_params: Mapping[str, Any], stop_ids: frozenset[int]) -> None:
        self._client, self._params, self._stop_ids = client, dict(sampling_params), stop_ids
        self.begin()

    def begin(self) -> None:
        """Forget what an episode before said."""
        self.version = "verl"
        self.steps: tuple[int | None, int | None] = (None, None)
        self.preempted: int | None = None

    async def generate(self, session: str, ids: Sequence[int], sampling: Sampling) -> Generated:
        asked = {**self._params, "max_tokens": sampling.max_tokens, "stop_token_ids": sorted(self._stop_ids)}
        try:
            answer = await self._client.generate(request_id=session, prompt_ids=[*ids], sampling_params=asked)
        except RayError as error:
            why = str(error).strip().partition("\n")[0]
            raise EndpointError("verl's server could not be asked", why=f"{type(error).__name__}: {why}") from error
        if answer.stop_reason == "aborted":
            raise EndpointError("verl's server gave up a request", mend="The episode is made again.")
        drawn = tuple(int(one) for one in answer.token_ids)
        self._note(answer)
        return Generated(
            drawn,
            None if answer.log_probs is None else tuple(float(one) for one in answer.log_probs),
            bool(drawn) and drawn[-1] in self._stop_ids,
            version=self.version,
        )

    def _note(self, answer: Any) -> None:
        first, last = (answer.extra_fields.get(f"{end}_global_steps") for end in ("min", "max"))
        if last is not None:
            known = self.steps[0]
            self.steps = (first if known is None else min(known, first), last)
            self.version = f"verl@step-{last}"
        if answer.num_preempted is not None:
            self.preempted = (self.preempted or 0) + answer.num_preempted


def _output(row: EpisodeRow, server: _Server) -> AgentLoopOutput:
    found = row.trajectory
    if row.reward is None:
        fault = found.faults[0] if found.faults else None
        kind = EndpointError if fault is not None and fault.where == "policy" else SandboxError
        raise kind(f"Infrastructure lost the episode {found.id}", why=fault.message if fault is not None else "")
    timing = found.timing
    first, last = server.steps
    return AgentLoopOutput(
        prompt_ids=[*row.prompt_ids],
        response_ids=[*row.response_ids],
        response_mask=[*row.mask],
        response_logprobs=None if row.logprobs is None else [*row.logprobs],
        reward_score=row.reward,
        num_turns=2 * row.turns,
        metrics={
            "generate_sequences": timing.sampling_seconds or 0.0,
            "tool_calls": timing.acting_seconds or 0.0,
            "compute_score": timing.grading_seconds or 0.0,
            "num_preempted": -1 if server.preempted is None else server.preempted,
        },
        extra_fields={
            "min_global_steps": first,
            "max_global_steps": last,
            "turn_scores": [],
            "tool_rewards": [],
            "trajectory_id": found.id,
            "stop": str(found.stop),
            "reward_extra_info": {"resolved": float(found.report is not None and found.report.verdict == "resolved")},
        },
    )


def _task_id(row: Mapping[str, Any]) -> str:
    name = row.get("task_id")
    if name is None:
        raise UsageError(
            "A row of verl's data names no task",
            why="It has no column task_id.",
            mend="Make the file with: patchgym tasks prompts SET --for verl --out FILE.parquet",
        )
    return str(name)


def _shared(settings: GymSettings, tokenizer: Any, build: Callable[[Environment], Path]) -> tuple[Gym, ChatEncoder]:
    """What the episodes of this process share."""
    key = settings.model_dump_json()
    if key not in _GYMS:
        gym = Gym(settings, worker=f"{socket.gethostname()}-{os.getpid()}", build=build)
        atexit.register(gym.close)
        _GYMS[key] = (gym, ChatEncoder(tokenizer))
    return _GYMS[key]
