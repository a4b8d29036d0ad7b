"""Episodes inside SkyRL: a generator in place of its own.

Written against SkyRL 0.3.0, whose trainer asks of a generator one method (``GeneratorInterface``). SkyRL imports only
on Python 3.12 or later, and nothing of it is imported here.
"""

import asyncio
import socket
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from patchgym.errors import EndpointError, UsageError
from patchgym.policy.chat import ChatEncoder
from patchgym.records import Environment, Sampling, Trajectory
from patchgym.reward import settle
from patchgym.sandbox.environments import build_environment
from patchgym.trainers.gym import Draw, Gym, GymSettings
from patchgym.trainers.policy import Generated, TokenLimits, TokenPolicy, neutral_sampling
from patchgym.trainers.rows import EpisodeRow, episode_row


class PatchgymGenerator:
    """``BasePPOExp.get_generator`` returns one. ``generator_cfg`` is SkyRL's, for its lengths and for the sampling
    where a batch says none; ``policy_model_name`` is what the engine calls the policy (None: as it likes)."""

    def __init__(
        self,
        settings: GymSettings,
        *,
        generator_cfg: Any,
        inference_engine_client: Any,
        tokenizer: Any,
        policy_model_name: str | None = None,
        build: Callable[[Environment], Path] = build_environment,
    ) -> None:
        """Open everything. ``build`` gives the directory of a built environment.

        Raises:
            UsageError, ConfigError, PrerequisiteError, DataError: as ``Gym``; a ConfigError also where the chat
                template cannot be used token by token.
        """
        self._encoder = ChatEncoder(tokenizer)
        self._config, self._client, self._model = generator_cfg, inference_engine_client, policy_model_name
        self._gym = Gym(settings, worker=socket.gethostname(), build=build)

    def close(self) -> None:
        """Release sandboxes and the run directory."""
        self._gym.close()

    async def generate(self, input_batch: Mapping[str, Any]) -> dict[str, Any]:
        """SkyRL's ``GeneratorOutput`` of a ``GeneratorInput``: one graded episode for each prompt, in their order.

        A row that infrastructure lost has no id that is trained, and the mean reward of the others of its group, so
        that the group's mean stays where it is.

        Raises:
            UsageError: a row names no task of the set, or a held-out one in training.
            ConfigError: the sampling cannot be recorded.
        """
        params = self._params(input_batch)
        draw = _draw(params, input_batch.get("batch_metadata"))
        extras = input_batch.get("env_extras") or [{} for _ in input_batch["prompts"]]
        tasks = [self._gym.task(_task_id(one), draw) for one in extras]
        engine = _Engine(self._client, self._model, params, self._encoder.stop_ids)
        limits = TokenLimits(self._config.max_input_length + params["max_tokens"])

        def policy_for(session: str) -> TokenPolicy:
            return TokenPolicy(engine, self._encoder, session=session, limits=limits)

        asked = (self._gym.attempt(task, draw, "skyrl", policy_for) for task in tasks)
        found = settle(await asyncio.gather(*asked))
        logged = params.get("logprobs") is not None
        rows = [episode_row(one, filler=self._encoder.end_of_turn, need_logprobs=logged) for one in found]
        return _output(rows, input_batch.get("trajectory_ids"), logged)

    def _params(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Sampling parameters in vLLM's words: the batch's, else the configuration's."""
        told = batch.get("sampling_params")
        if told is not None:
            return dict(told)
        config = self._config.sampling_params
        names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "logprobs")
        return {**{name: getattr(config, name) for name in names}, "max_tokens": config.max_generate_length}


class _Engine:
    """SkyRL's inference client as a generator."""

    def __init__(self, client: Any, model: str | None, params: Mapping[str, Any], stop_ids: frozenset[int]) -> None:
        self._client, self._model, self._params, self._stop_ids = client, model, dict(params), stop_ids
        self.version = model or "skyrl"

    async def generate(self, session: str, ids: Sequence[int], sampling: Sampling) -> Generated:
        params = {**self._params, "max_tokens": sampling.max_tokens, "stop_token_ids": sorted(self._stop_ids)}
        asked = {"prompt_token_ids": [[*ids]], "session_ids": [session], "sampling_params": params}
        try:
            answer = await self._client.generate(asked, model=self._model)
        except _faults() as error:
            raise EndpointError("SkyRL's engine could not be asked", why=f"{type(error).__name__}: {error}") from error
        if answer["stop_reasons"][0] == "abort":
            raise EndpointError("SkyRL's engine gave up a request", mend="The episode is made again.")
        drawn = tuple(int(one) for one in answer["response_ids"][0])
        logprobs = answer.get("response_logprobs")
        return Generated(
            drawn,
            None if logprobs is None or logprobs[0] is None else tuple(float(one) for one in logprobs[0]),
            bool(drawn) and drawn[-1] in self._stop_ids,
        )


def _faults() -> tuple[type[Exception], ...]:
    """What SkyRL's client raises where its server is away."""
    try:
        from aiohttp import ClientError
    except ImportError:
        return (OSError,)
    return (OSError, ClientError)


def neutral_rewards(rows: Sequence[EpisodeRow]) -> list[float]:
    """The reward of each row; where infrastructure lost one, the mean of those of its group that have one (0 where
    nobody has). So the mean of the group is that of the rewards which were measured."""
    groups: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.reward is not None:
            groups[row.trajectory.group_id].append(row.reward)
    return [row.reward if row.reward is not None else _mean(groups[row.trajectory.group_id]) for row in rows]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _output(rows: Sequence[EpisodeRow], trajectory_ids: object, logged: bool) -> dict[str, Any]:
    found = [row.trajectory for row in rows]
    return {
        "prompt_token_ids": [[*row.prompt_ids] for row in rows],
        "response_ids": [[*row.response_ids] for row in rows],
        "rewards": neutral_rewards(rows),
        "loss_masks": [[*row.mask] for row in rows],
        "stop_reasons": [row.stop_reason for row in rows],
        "rollout_metrics": _metrics(found),
        "rollout_logprobs": [[*(row.logprobs or ())] for row in rows] if logged else None,
        "trajectory_ids": trajectory_ids,
        "trajectory_generation_times": [one.timing.total_seconds or 0.0 for one in found],
        "rollout_expert_indices": None,
        "is_last_step": None,
        "env_metrics": [{"resolved": _resolved(one)} for one in found],
        "pixel_values": None,
        "image_grid_thw": None,
    }


def _metrics(found: Sequence[Trajectory]) -> dict[str, float]:
    kept = [one for one in found if one.status == "completed"]
    metrics = {"patchgym/lost": float(len(found) - len(kept))}
    if kept:
        metrics["patchgym/resolved"] = _mean([_resolved(one) for one in kept])
        metrics["patchgym/turns"] = _mean([float(len(one.steps)) for one in kept])
    return metrics


def _resolved(one: Trajectory) -> float:
    return float(one.report is not None and one.report.verdict == "resolved")


def _draw(params: Mapping[str, Any], metadata: Any) -> Draw:
    temperature, top_p = neutral_sampling(params, "generator.sampling_params")
    phase: Literal["train", "eval"] = "eval" if getattr(metadata, "training_phase", "train") == "eval" else "train"
    return Draw(temperature, top_p, phase, getattr(metadata, "global_step", None))


def _task_id(extras: Mapping[str, Any]) -> str:
    name = extras.get("task_id")
    if name is None:
        raise UsageError(
            "A row of SkyRL's data names no task",
            why="It has no column task_id.",
            mend="Make the file with: patchgym tasks prompts SET --for skyrl --out FILE.parquet",
        )
    return str(name)
