"""Rows for TRL's ``GRPOTrainer(rollout_func=...)``: what such a function returns, one sample a row. The columns as
lists are its return value; ``reward`` and the names go on to the reward functions."""

from collections.abc import Iterator, Mapping, Sequence

from patchgym.records import Trajectory
from patchgym.traces.intake import Intake
from patchgym.traces.writers.samples import TOKEN_PARTS, reward_of, token_samples
from patchgym.traces.writers.writer import Known, Row

NAME = "trl"
ABOUT = "token samples for TRL's rollout_func: prompt_ids, completion_ids, logprobs, env_mask, reward"
FOLDER = False
HOLDS: frozenset[str] | None = TOKEN_PARTS
COLUMNS: Mapping[str, str] = {
    "prompt_ids": "BIGINT[]",
    "completion_ids": "BIGINT[]",
    "logprobs": "DOUBLE[]",
    "env_mask": "BIGINT[]",
    "reward": "DOUBLE",
    "trajectory_id": "VARCHAR",
    "task_id": "VARCHAR",
    "group_id": "VARCHAR",
    "sample_index": "BIGINT",
}


def rows(trajectory: Trajectory, known: Known) -> Sequence[Row]:
    """See ``Writer.rows``. TRL corrects its loss with the sampler's log-probabilities, so they are demanded."""
    return [
        {
            "prompt_ids": [*sample.prompt_ids],
            "completion_ids": [*sample.response_ids],
            "logprobs": [*(sample.logprobs or ())],
            "env_mask": [*sample.mask],
            "reward": reward_of(trajectory),
            "trajectory_id": trajectory.id,
            "task_id": trajectory.task_id,
            "group_id": trajectory.group_id,
            "sample_index": trajectory.sample_index,
        }
        for sample in token_samples(trajectory, need_logprobs=True)
    ]


def read_back(rows: Sequence[Row], intake: Intake) -> Iterator[Trajectory]:
    """See ``Writer.read_back``: nothing reads it."""
    yield from ()
