"""Episodes inside TRL's ``GRPOTrainer``: a ``rollout_func`` and the reward function that goes with it.

::

    gym = GymSettings(taskset="tasks", out="runs/trl")
    trainer = GRPOTrainer(
        model=..., args=..., reward_funcs=episode_reward, rollout_func=RolloutFunc(gym),
        train_dataset=Dataset.from_list(task_prompts(TaskSet.load(Path("tasks")).split("train"), "trl")),
    )

TRL hands a rollout function prompts and nothing else, so that a prompt is the id of a task here; what the model reads
is made from the task. Written against TRL 1.16, which calls ``rollout_func`` experimental.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchgym.errors import ConfigError, UsageError
from patchgym.policy.chat import ChatEncoder
from patchgym.records import Environment, Sampling
from patchgym.reward import settle
from patchgym.sandbox.environments import build_environment
from patchgym.trainers.gym import Draw, Gym, GymSettings
from patchgym.trainers.policy import Generated, Generator, TokenLimits, TokenPolicy, neutral_sampling
from patchgym.trainers.rows import EpisodeRow, episode_row

if TYPE_CHECKING:
    from patchgym.policy.engine import Engine
    from patchgym.policy.vllm import VllmServer

_SERVER_SECONDS = 600.0


def episode_reward(
    completions: Sequence[object], reward: Sequence[float | None], **columns: object
) -> list[float | None]:
    """The rewards that the rollout function gave. None, where infrastructure lost the episode: TRL leaves such rows out
    of their group's mean and deviation, and gives them the advantage 0."""
    return list(reward)


class RolloutFunc:
    """``GRPOTrainer(rollout_func=RolloutFunc(settings))``. Samples from the trainer's own weights in this process, or,
    with ``use_vllm=True, vllm_mode="server"``, from TRL's vLLM server. Everything is opened at the first call, by the
    name of the process's rank."""

    def __init__(self, settings: GymSettings, *, build: Callable[[Environment], Path] = build_environment) -> None:
        """``build`` gives the directory of a built environment."""
        self._settings, self._build = settings, build
        self._gym: Gym | None = None
        self._encoder: ChatEncoder | None = None

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """One graded episode for each prompt: ``prompt_ids``, ``completion_ids``, ``logprobs``, ``env_mask`` (1 on what
        the model sampled), ``reward`` (None where infrastructure lost it), ``task_id`` and ``trajectory_id``.

        Raises:
            UsageError: a prompt is no task of the set, or a held-out one in training.
            ConfigError: the trainer samples in a way that episodes cannot record, or its chat template cannot be used
                token by token.
            PatchgymError: nothing can be tried on this machine.
        """
        rows = asyncio.run(self._episodes([_task_id(prompt) for prompt in prompts], trainer))
        return {
            "prompt_ids": [[*row.prompt_ids] for row in rows],
            "completion_ids": [[*row.response_ids] for row in rows],
            "logprobs": [[*(row.logprobs or ())] for row in rows],
            "env_mask": [[*row.mask] for row in rows],
            "reward": [row.reward for row in rows],
            "task_id": [row.trajectory.task_id for row in rows],
            "trajectory_id": [row.trajectory.id for row in rows],
        }

    def close(self) -> None:
        """Release sandboxes and the run directory. May be called twice."""
        if self._gym is not None:
            self._gym.close()
            self._gym = None

    async def _episodes(self, names: Sequence[str], trainer: Any) -> list[EpisodeRow]:
        gym, encoder = self._opened(trainer)
        draw = _draw(trainer)
        tasks = [gym.task(name, draw) for name in names]
        limits = TokenLimits(trainer.model.config.max_position_embeddings, response=trainer.max_completion_length)
        async with _sampler(trainer, encoder, draw) as generator:

            def policy_for(session: str) -> TokenPolicy:
                vocabulary = trainer.model.config.vocab_size
                return TokenPolicy(generator, encoder, session=session, vocabulary=vocabulary, limits=limits)

            spec = f"trl:{trainer.model.config.name_or_path or 'model'}"
            found = await asyncio.gather(*(gym.attempt(task, draw, spec, policy_for) for task in tasks))
        # The samples of a group may lie on several ranks; the second layer is for whole groups alone.
        found = settle(found) if trainer.accelerator.num_processes == 1 else found
        return [episode_row(one, filler=encoder.end_of_turn) for one in found]

    def _opened(self, trainer: Any) -> tuple[Gym, ChatEncoder]:
        if self._gym is None:
            self._gym = Gym(self._settings, worker=str(trainer.accelerator.process_index), build=self._build)
        if self._encoder is None:
            processing = trainer.processing_class
            self._encoder = ChatEncoder(getattr(processing, "tokenizer", processing))
        return self._gym, self._encoder


def _task_id(prompt: Any) -> str:
    """The task that a prompt names: its text, or that of its last message."""
    last = prompt[-1] if isinstance(prompt, list) and prompt else prompt
    found = last.get("content") if isinstance(last, dict) else last
    if not isinstance(found, str):
        raise UsageError(
            "A prompt names no task", mend="Make the data set with patchgym.trainers.prompts.task_prompts."
        )
    return found


def _draw(trainer: Any) -> Draw:
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    temperature, top_p = neutral_sampling({name: getattr(trainer, name) for name in names}, "GRPOConfig")
    return Draw(temperature, top_p, "train" if trainer.model.training else "eval", trainer.state.global_step)


@asynccontextmanager
async def _sampler(trainer: Any, encoder: ChatEncoder, draw: Draw) -> AsyncIterator[Generator]:
    """What this trainer samples with, for the length of one call: afterwards its weights are others."""
    version = f"trl@step-{draw.step}"
    if not trainer.use_vllm:
        with _own_weights(trainer, encoder, version) as engine:
            yield _InProcess(engine, version)
        return
    client = getattr(trainer.vllm_generation, "vllm_client", None)
    if client is None:
        raise ConfigError(
            "Episodes cannot be sampled from this trainer's vLLM",
            why="They ask it turn by turn, and only a server can be asked so, from one process.",
            mend="Set vllm_mode='server' and start one training process, or use_vllm=False.",
        )
    from patchgym.policy.endpoint import Endpoint
    from patchgym.policy.vllm import VllmServer

    endpoint = Endpoint(client.base_url, None, timeout_s=_SERVER_SECONDS)
    vocabulary = trainer.model.config.vocab_size
    try:
        yield _Server(VllmServer(endpoint), client.model, encoder.stop_ids, vocabulary, version)
    finally:
        await endpoint.close()


@contextmanager
def _own_weights(trainer: Any, encoder: ChatEncoder, version: str) -> Iterator["Engine"]:
    """The trainer's model, as it stands, under our batched engine.

    Raises:
        ConfigError: its layers do not all attend to everything before them.
    """
    from trl.models.utils import unwrap_model_for_generation

    from patchgym.policy.engine import Engine
    from patchgym.policy.local import check_attention
    from patchgym.policy.models import LoadedModel

    processing = trainer.processing_class
    tokenizer = getattr(processing, "tokenizer", processing)
    kept = trainer.args.gradient_checkpointing_kwargs
    with unwrap_model_for_generation(
        trainer.model_wrapped, trainer.accelerator, gradient_checkpointing_kwargs=kept
    ) as model:
        context = model.config.max_position_embeddings
        check_attention(LoadedModel(model, tokenizer, version, version, Path(), context))
        training = model.training
        model.eval()
        engine = Engine(model, encoder.stop_ids)
        try:
            yield engine
        finally:
            engine.close()
            model.train(training)


class _InProcess:
    """The engine as a generator."""

    def __init__(self, engine: "Engine", version: str) -> None:
        self._engine, self.version = engine, version

    async def generate(self, session: str, ids: Sequence[int], sampling: Sampling) -> Generated:
        from patchgym.policy.engine import Request

        request = Request(tuple(ids), sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.seed)
        done = await asyncio.wrap_future(self._engine.submit(request))
        return Generated(done.ids, done.logprobs, done.stopped, done.cached)


class _Server:
    """TRL's vLLM server as a generator, asked as every other vLLM server (``patchgym.policy.vllm``)."""

    def __init__(
        self, server: "VllmServer", model: str, stop_ids: frozenset[int], vocabulary: int, version: str
    ) -> None:
        self._server, self._model, self.version = server, model, version
        self._stop_ids, self._vocabulary = stop_ids, vocabulary

    async def generate(self, session: str, ids: Sequence[int], sampling: Sampling) -> Generated:
        done = await self._server.complete(
            self._model, ids, sampling, stop_ids=self._stop_ids, vocabulary=self._vocabulary
        )
        return Generated(done.ids, done.logprobs, done.stopped, done.cached)
