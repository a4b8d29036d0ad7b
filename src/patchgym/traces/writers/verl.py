"""Rows for verl: the fields of its ``AgentLoopOutput``, one sample a row."""

from collections.abc import Iterator, Mapping, Sequence

from patchgym.records import Trajectory
from patchgym.traces.intake import Intake
from patchgym.traces.writers.samples import TOKEN_PARTS, reward_of, token_samples, turns
from patchgym.traces.writers.writer import Known, Row

NAME = "verl"
ABOUT = "token samples for verl, the fields of its AgentLoopOutput"
FOLDER = False
HOLDS: frozenset[str] | None = TOKEN_PARTS | {"stop", "timing.sampling_seconds", "timing.acting_seconds"}
COLUMNS: Mapping[str, str] = {
    "prompt_ids": "BIGINT[]",
    "response_ids": "BIGINT[]",
    "response_mask": "BIGINT[]",
    "response_logprobs": "DOUBLE[]",
    "reward_score": "DOUBLE",
    "num_turns": "BIGINT",
    "metrics": "STRUCT(generate_sequences DOUBLE, tool_calls DOUBLE)",
    "extra_fields": (
        "STRUCT(trajectory_id VARCHAR, task_id VARCHAR, group_id VARCHAR, sample_index BIGINT, stop VARCHAR)"
    ),
}


def rows(trajectory: Trajectory, known: Known) -> Sequence[Row]:
    """See ``Writer.rows``. ``num_turns`` counts messages of the policy and of what answers it; ``metrics`` are the
    seconds of the whole trajectory, 0 where they were not measured (verl knows no other way to say so)."""
    return [
        {
            "prompt_ids": [*sample.prompt_ids],
            "response_ids": [*sample.response_ids],
            "response_mask": [*sample.mask],
            "response_logprobs": None if sample.logprobs is None else [*sample.logprobs],
            "reward_score": reward_of(trajectory),
            "num_turns": 2 * turns(sample.stretch),
            "metrics": {
                "generate_sequences": trajectory.timing.sampling_seconds or 0.0,
                "tool_calls": trajectory.timing.acting_seconds or 0.0,
            },
            "extra_fields": {
                "trajectory_id": trajectory.id,
                "task_id": trajectory.task_id,
                "group_id": trajectory.group_id,
                "sample_index": trajectory.sample_index,
                "stop": trajectory.stop,
            },
        }
        for sample in token_samples(trajectory)
    ]


def read_back(rows: Sequence[Row], intake: Intake) -> Iterator[Trajectory]:
    """See ``Writer.read_back``: nothing reads it."""
    yield from ()
