"""Rows for SkyRL: a ``GeneratorOutput`` a row, with the samples of one trajectory. SkyRL's
``concatenate_generator_outputs`` makes one of many."""

from collections.abc import Iterator, Mapping, Sequence

from patchgym.records import Trajectory
from patchgym.traces.intake import Intake
from patchgym.traces.writers.samples import TOKEN_PARTS, reward_of, token_samples, was_cut
from patchgym.traces.writers.writer import Known, Row

NAME = "skyrl"
ABOUT = "token samples for SkyRL, a GeneratorOutput for each trajectory"
FOLDER = False
HOLDS: frozenset[str] | None = (TOKEN_PARTS - {"id", "group_id"}) | {"timing.total_seconds"}
COLUMNS: Mapping[str, str] = {
    "prompt_token_ids": "BIGINT[][]",
    "response_ids": "BIGINT[][]",
    "rewards": "DOUBLE[]",
    "loss_masks": "BIGINT[][]",
    "stop_reasons": "VARCHAR[]",
    "rollout_metrics": "VARCHAR",
    "rollout_logprobs": "DOUBLE[][]",
    "trajectory_ids": "STRUCT(instance_id VARCHAR, repetition_id BIGINT)[]",
    "trajectory_generation_times": "DOUBLE[]",
}


def rows(trajectory: Trajectory, known: Known) -> Sequence[Row]:
    """See ``Writer.rows``. ``stop_reasons`` has SkyRL's words: ``length`` where a limit ended it, else ``stop``.
    ``rollout_logprobs`` is None where a sampled id has none."""
    samples = token_samples(trajectory)
    whole = all(sample.logprobs is not None for sample in samples)
    seconds = trajectory.timing.total_seconds
    return [
        {
            "prompt_token_ids": [[*sample.prompt_ids] for sample in samples],
            "response_ids": [[*sample.response_ids] for sample in samples],
            "rewards": [reward_of(trajectory)] * len(samples),
            "loss_masks": [[*sample.mask] for sample in samples],
            "stop_reasons": ["length" if was_cut(trajectory) else "stop"] * len(samples),
            "rollout_metrics": None,
            "rollout_logprobs": [[*(sample.logprobs or ())] for sample in samples] if whole else None,
            "trajectory_ids": [
                {"instance_id": trajectory.task_id, "repetition_id": trajectory.sample_index} for _ in samples
            ],
            "trajectory_generation_times": None if seconds is None else [seconds] * len(samples),
        }
    ]


def read_back(rows: Sequence[Row], intake: Intake) -> Iterator[Trajectory]:
    """See ``Writer.read_back``: nothing reads it."""
    yield from ()
