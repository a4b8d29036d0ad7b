"""Token samples for trainers: ids as they were sampled, in the fields that each trainer names."""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from patchgym.records import Message, Step, StepTokens, StopReason, Trajectory
from patchgym.traces.writers import WRITERS, Known, Reason, Unwritable
from tests.records_for_tests import make_report, make_step, make_trajectory

TRAINERS = ["trl", "verl", "skyrl", "verifiers"]


def tokens(
    given: Sequence[int], sampled: Sequence[int], mask: Sequence[int] = (), *, restart: bool = False
) -> StepTokens:
    """Ids with a log-probability for each that is told by it."""
    return StepTokens(
        prompt_ids=tuple(given),
        sampled_ids=tuple(sampled),
        logprobs=tuple(-float(token) for token in sampled),
        mask=tuple(mask or [1] * len(sampled)),
        restart=restart,
    )


def trajectory(*steps: Step, **changes: Any) -> Trajectory:
    """A trajectory with a reward."""
    made = make_trajectory(steps=steps, report=make_report(), reward=0.5)
    return made.model_copy(update=changes)


def two_turns() -> Trajectory:
    """Two turns, of which the second has an id that may not be trained on."""
    return trajectory(make_step(0, tokens=tokens([1, 2], [3])), make_step(1, tokens=tokens([4], [5, 6], [1, 0])))


def rows(format_name: str, of: Trajectory) -> list[dict[str, Any]]:
    """Rows as they are read by somebody else."""
    found: list[dict[str, Any]] = json.loads(json.dumps(WRITERS[format_name].rows(of, Known()), allow_nan=False))
    return found


def refused(format_name: str, of: Trajectory) -> Reason:
    """Why a trajectory is refused."""
    with pytest.raises(Unwritable) as error:
        WRITERS[format_name].rows(of, Known())
    return error.value.reason


def test_trl_gets_what_a_rollout_func_returns() -> None:
    (row,) = rows("trl", two_turns())
    assert (row["prompt_ids"], row["completion_ids"]) == ([1, 2], [3, 4, 5, 6])
    assert (row["env_mask"], row["logprobs"], row["reward"]) == ([1, 0, 1, 0], [-3.0, 0.0, -5.0, -6.0], 0.5)


class AgentLoopMetrics(BaseModel):
    """As verl 0.9.1 defines it (verl/experimental/agent_loop/agent_loop.py), unknown keys refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    generate_sequences: float = 0.0
    tool_calls: float = 0.0
    compute_score: float = 0.0
    num_preempted: int = -1


class AgentLoopOutput(BaseModel):
    """Likewise, without images."""

    model_config = ConfigDict(extra="forbid", strict=True)

    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    response_logprobs: list[float] | None = None
    reward_score: float | None = None
    num_turns: int = 0
    metrics: AgentLoopMetrics
    extra_fields: dict[str, Any] = {}


def test_verl_gets_an_agent_loop_output() -> None:
    (row,) = rows("verl", two_turns())
    found = AgentLoopOutput.model_validate(row)
    assert len(found.response_ids) == len(found.response_mask) == len(found.response_logprobs or ())
    assert (found.reward_score, found.num_turns, found.response_mask) == (0.5, 4, [1, 0, 1, 0])


def test_skyrl_gets_a_generator_output() -> None:
    (row,) = rows("skyrl", two_turns().model_copy(update={"stop": StopReason.TURN_LIMIT}))
    # The keys of SkyRL 0.4's GeneratorOutput (skyrl/train/generators/base.py), with a list entry for each sample.
    assert row == {
        "prompt_token_ids": [[1, 2]],
        "response_ids": [[3, 4, 5, 6]],
        "rewards": [0.5],
        "loss_masks": [[1, 0, 1, 0]],
        "stop_reasons": ["length"],
        "rollout_metrics": None,
        "rollout_logprobs": [[-3.0, 0.0, -5.0, -6.0]],
        "trajectory_ids": [{"instance_id": "demo-1", "repetition_id": 0}],
        "trajectory_generation_times": [2.0],
    }


def branches(trace: dict[str, Any]) -> list[tuple[list[int], list[bool], list[float]]]:
    """Ids, mask and log-probabilities of each root-to-leaf path, as verifiers concatenates them."""
    nodes = trace["nodes"]
    parents = {node["parent"] for node in nodes}
    found: list[tuple[list[int], list[bool], list[float]]] = []
    for leaf in range(len(nodes)):
        if leaf in parents:
            continue
        path: list[dict[str, Any]] = []
        at: int | None = leaf
        while at is not None:
            path.append(nodes[at])
            at = nodes[at]["parent"]
        parts = [[x for node in reversed(path) for x in node.get(key, [])] for key in ("token_ids", "mask", "logprobs")]
        found.append((parts[0], parts[1], parts[2]))
    return found


def test_verifiers_gets_a_trace_whose_paths_are_the_samples() -> None:
    (trace,) = rows("verifiers", two_turns())
    assert branches(trace) == [([1, 2, 3, 4, 5, 6], [False, False, True, False, True, False], [-3.0, -5.0])]
    assert trace["rewards"] == {"reward": {"score": 0.5, "weight": 1.0}}
    assert [node["message"]["role"] for node in trace["nodes"]] == ["user", "assistant", "user", "assistant"]


def test_verifiers_gets_a_call_for_each_answer() -> None:
    (trace,) = rows("verifiers", two_turns())
    assert [call["node"] for call in trace["calls"]] == [1, 3]
    assert all(trace["nodes"][call["node"]]["sampled"] for call in trace["calls"])
    assert trace["calls"][0]["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "cached_input_tokens": None}
    assert trace["calls"][0]["sampling"]["temperature"] == 1.0


@pytest.mark.parametrize(
    ("stop", "words", "timeout"),
    [
        (StopReason.SUBMITTED, "agent_completed", False),
        (StopReason.TURN_LIMIT, "max_turns", False),
        (StopReason.TIME_LIMIT, "agent_timeout", True),
        (StopReason.HOPELESS_LOOP, "hopeless_loop", False),
    ],
)
def test_verifiers_is_told_in_its_words_what_was_cut_off(stop: StopReason, words: str, timeout: bool) -> None:
    (trace,) = rows("verifiers", two_turns().model_copy(update={"stop": stop}))
    assert (trace["stop_condition"], trace["is_timeout"]) == (words, timeout)


def tree() -> Trajectory:
    """A root with two leaves."""
    root, left = make_step(0, tokens=tokens([1], [2])), make_step(1, tokens=tokens([3], [4]))
    right = make_step(2, tokens=tokens([5], [6])).model_copy(update={"parent": 0})
    return trajectory(root, left, right)


def test_an_id_that_two_paths_share_is_trained_once() -> None:
    one, other = rows("trl", tree())
    assert (one["completion_ids"], one["env_mask"]) == ([2, 3, 4], [1, 0, 1])
    assert (other["completion_ids"], other["env_mask"]) == ([2, 5, 6], [0, 0, 1])


def test_a_tree_is_a_trace_with_two_paths() -> None:
    (trace,) = rows("verifiers", tree())
    assert [ids for ids, _, _ in branches(trace)] == [[1, 2, 3, 4], [1, 2, 5, 6]]


def test_a_restart_begins_a_sample() -> None:
    made = trajectory(make_step(0, tokens=tokens([1], [2])), make_step(1, tokens=tokens([8, 9], [3], restart=True)))
    assert [(row["prompt_ids"], row["completion_ids"]) for row in rows("trl", made)] == [([1], [2]), ([8, 9], [3])]
    assert [ids for ids, _, _ in branches(rows("verifiers", made)[0])] == [[1, 2], [8, 9, 3]]


@pytest.mark.parametrize("format_name", TRAINERS)
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": "infra_error"}, Reason.INFRASTRUCTURE),
        ({"steps": ()}, Reason.NO_STEPS),
        ({"reward": None}, Reason.NOT_SCORED),
        ({"reward_trusted": False}, Reason.NOT_TRUSTED),
        ({"steps": (make_step(),)}, Reason.NO_TOKENS),
        ({"steps": (make_step(),), "redacted": {"email": 1}}, Reason.REDACTED),
        ({"steps": (make_step(0, tokens=tokens([1], [2, 3], [1])),)}, Reason.LENGTH_MISMATCH),
        ({"steps": (make_step(0, tokens=tokens([1], [2], [0])),)}, Reason.NOTHING_TRAINABLE),
        ({"steps": (make_step(1, tokens=tokens([1], [2])),)}, Reason.BROKEN_PATH),
    ],
)
def test_what_may_not_be_trained_on_is_refused(format_name: str, changes: dict[str, Any], reason: Reason) -> None:
    assert refused(format_name, two_turns().model_copy(update=changes)) is reason


def without_logprobs() -> Trajectory:
    """A trajectory whose sampler told no log-probabilities."""
    found = tokens([1], [2]).model_copy(update={"logprobs": None})
    return trajectory(make_step(0, tokens=found))


def test_log_probabilities_that_are_not_there_are_none_and_never_0() -> None:
    assert refused("trl", without_logprobs()) is Reason.NO_LOGPROBS
    assert rows("verl", without_logprobs())[0]["response_logprobs"] is None
    assert rows("skyrl", without_logprobs())[0]["rollout_logprobs"] is None
    assert rows("verifiers", without_logprobs())[0]["nodes"][-1]["logprobs"] == []


def test_calls_that_continue_a_message_add_no_ids() -> None:
    second = make_step(1).model_copy(update={"continues": True, "message": Message(role="assistant", content="")})
    (row,) = rows("trl", trajectory(make_step(0, tokens=tokens([1], [2])), second))
    assert row["completion_ids"] == [2]


def test_verifiers_own_model_takes_the_trace() -> None:
    if find_spec("verifiers") is None:
        pytest.skip("SKIPPED LOUDLY: verifiers is not installed here, so its own model was not asked")
    trace_module = pytest.importorskip("verifiers.v1.trace")
    for made in (two_turns(), tree()):
        (row,) = rows("verifiers", made)
        trace = trace_module.WireTrace.model_validate(row)
        found = [(branch.token_ids, branch.sampled_mask) for branch in trace.branches]
        assert found == [(ids, mask) for ids, mask, _ in branches(row)]
        assert trace.reward == 0.5
        assert trace.num_turns == len(trace.calls) == len(made.steps)
        assert trace.usage is not None
        assert trace.usage.completion_tokens == 2 * len(made.steps)


def test_verifiers_own_model_knows_which_were_cut_off() -> None:
    if find_spec("verifiers") is None:
        pytest.skip("SKIPPED LOUDLY: verifiers is not installed here, so its own model was not asked")
    trace_module = pytest.importorskip("verifiers.v1.trace")
    for stop, cut in ((StopReason.SUBMITTED, False), (StopReason.TURN_LIMIT, True), (StopReason.CONTEXT_LIMIT, True)):
        (row,) = rows("verifiers", two_turns().model_copy(update={"stop": stop}))
        assert trace_module.WireTrace.model_validate(row).is_truncated is cut


TURNS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 99), min_size=1, max_size=4),
        st.lists(st.tuples(st.integers(0, 99), st.sampled_from([0, 1])), min_size=1, max_size=4),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


@given(TURNS)
def test_samples_are_the_ids_as_they_were_sampled(
    turns: list[tuple[list[int], list[tuple[int, int]], bool]],
) -> None:
    steps = []
    contexts: list[list[int]] = []
    for number, (prompt, sampled, restart) in enumerate(turns):
        ids, mask = [token for token, _ in sampled], [bit for _, bit in sampled]
        steps.append(make_step(number, tokens=tokens(prompt, ids, mask, restart=restart and number > 0)))
        if number == 0 or restart:
            contexts.append([])
        contexts[-1] += [*prompt, *ids]
    made = trajectory(*steps)
    trained = [token for _, sampled, _ in turns for token, bit in sampled if bit]
    if not trained:
        assert refused("trl", made) is Reason.NOTHING_TRAINABLE
        return
    found = rows("trl", made)
    assert all([*row["prompt_ids"], *row["completion_ids"]] in contexts for row in found)
    marked = [
        (token, logprob)
        for row in found
        for token, bit, logprob in zip(row["completion_ids"], row["env_mask"], row["logprobs"], strict=True)
        if bit
    ]
    assert marked == [(token, -float(token)) for token in trained]
