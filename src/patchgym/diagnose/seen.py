"""One trajectory as the checks see it: what its steps show is read once, and the steps are let go."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from patchgym.agent.tools import TOOLS
from patchgym.errors import PatchError
from patchgym.evaluate import FailureType, failure_type
from patchgym.records import Evidence, Step, Task, Trajectory
from patchgym.records.outcome import evidence_against, hacked, solved
from patchgym.records.timeouts import timeout_of

_STEP_FIELDS = (
    "state_before",
    "state_after",
    "changed_paths",
    "policy_version",
    "sampling",
    "usage",
    "sampling_seconds",
    "started_at",
)
_FIELDS = ("task_hash", "sandbox", "final_state", "final_patch", "stop")
_OUT_OF_SIGHT, _TO_TELL = "client:", ("sampling", "usage")  # such a policy samples elsewhere, and may tell of it
_WITH_TOKENS = ("local:", "vllm:")
_EDITS = {"edit_file": "new", "write_file": "content"}


class Edit(NamedTuple):
    """An edit that the tool said it made: the text must stand in the file in the state after it."""

    step: int
    state: str
    path: str
    text: str


@dataclass(frozen=True)
class Seen:
    """One trajectory. ``light`` is the record without its steps; ``missing`` counts what the record does not hold, by
    field; ``broken`` says where its states do not follow each other; ``edits`` are a few to be looked up.

    ``acts`` tells its actions and ``whole`` everything that was recorded with its times, so that copies can be told.
    ``idle_timeouts`` counts test runs on the untouched workspace that ran out of time, which no policy can cause.
    ``logprob`` and ``sampled`` are the sum over the sampled ids and their number; 0 where none are recorded. ``solved``
    is that of ``patchgym.records.outcome``, and ``failure`` is told where the task is known."""

    light: Trajectory
    imported: bool
    steps: int
    readable: int
    missing: Mapping[str, int]
    broken: tuple[str, ...]
    edits: tuple[Edit, ...]
    states: tuple[str, ...]
    acts: bytes
    whole: bytes
    seed: int | None
    temperature: float | None
    timed_out: int
    idle_timeouts: int
    whose_time: str | None
    logprob: float
    sampled: int
    solved: bool | None
    failure: FailureType | None

    @property
    def id(self) -> str:
        """Its id."""
        return self.light.id

    @property
    def value(self) -> float | None:
        """Its reward; None where it was not scored."""
        return self.light.reward.value if self.light.reward is not None else None

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """What detectors and grading found against it."""
        return evidence_against(self.light)

    @property
    def hacked(self) -> bool:
        """Whether hacking is proved."""
        return hacked(self.light)


def seen(trajectory: Trajectory, task: Task | None) -> Seen:
    """Read a trajectory; ``task`` is its task, where the run keeps it."""
    steps, first = trajectory.steps, trajectory.steps[0] if trajectory.steps else None
    sampling = first.sampling if first is not None else None
    marked = [step.tokens for step in steps if step.tokens is not None and step.tokens.logprobs is not None]
    edits = list(_edits(steps))
    return Seen(
        light=trajectory.model_copy(update={"steps": ()}),
        imported=trajectory.origin is not None,
        steps=len(steps),
        readable=sum(step.action is not None for step in steps),
        missing=_missing(trajectory),
        broken=tuple(_breaks(trajectory, task)),
        edits=(*edits[:1], *edits[1:][-1:]),
        states=tuple(
            dict.fromkeys(state for step in steps[-1:] for state in (step.state_before, step.state_after) if state)
        ),
        acts=_digest([(s.action.tool, s.action.arguments) if s.action else s.message.content for s in steps]),
        whole=_digest([(str(s.started_at), s.message.content, s.sampling_seconds) for s in steps]),
        seed=sampling.seed if sampling is not None else None,
        temperature=sampling.temperature if sampling is not None else None,
        timed_out=sum(step.observation is not None and step.observation.timed_out for step in steps),
        idle_timeouts=sum(_idle_timeout(step, task) for step in steps),
        whose_time=timeout_of(trajectory),
        logprob=sum(sum(tokens.logprobs or ()) for tokens in marked),
        sampled=sum(len(tokens.logprobs or ()) for tokens in marked),
        solved=solved(trajectory),
        failure=_failure(trajectory, task),
    )


def _failure(trajectory: Trajectory, task: Task | None) -> FailureType | None:
    """How it failed; None where it did not, its task is not known or its patch cannot be read."""
    try:
        return failure_type(trajectory, task) if task is not None else None
    except PatchError:
        return None


def _missing(trajectory: Trajectory) -> dict[str, int]:
    """What ought to be recorded and is not, by field, counted in steps (of the trajectory: once)."""
    lacks: Counter[str] = Counter(name for name in _FIELDS if getattr(trajectory, name) is None)
    lacks["report"] += trajectory.status == "completed" and trajectory.report is None
    sampled = trajectory.policy.spec.startswith(_WITH_TOKENS)
    optional = _TO_TELL if trajectory.policy.spec.startswith(_OUT_OF_SIGHT) else ()
    for step in trajectory.steps:
        lacks.update(name for name in _STEP_FIELDS if getattr(step, name) is None and name not in optional)
        lacks["observation"] += step.action is not None and step.observation is None
        lacks["arguments"] += _lost_arguments(step)
        lacks["prompt"] += not step.prompt and step.parent is None
        lacks["token ids"] += sampled and step.tokens is None
        lacks["log-probs"] += sampled and step.tokens is not None and step.tokens.logprobs is None
    return {name: count for name, count in lacks.items() if count}


def _lost_arguments(step: Step) -> bool:
    """Whether an action was carried out that its record could not have made: an argument that it needs is not there."""
    if step.action is None or step.observation is None or not step.observation.ok:
        return False
    tool = TOOLS.get(step.action.tool)
    return tool is not None and any(name not in step.action.arguments for name in tool.required)


def _breaks(trajectory: Trajectory, task: Task | None) -> Iterator[str]:
    """Where a state is not the one that the step before left, a step is not the next one, or the end is another."""
    before: Step | None = None
    for step in trajectory.steps:
        if trajectory.tree_id is None and step.index != (before.index + 1 if before else 0):
            yield f"step {step.index} follows step {before.index}" if before else f"step {step.index} is the first"
        elif before is None and task is not None and step.state_before not in (None, task.workspace):
            yield f"step {step.index} does not begin at the task's workspace"
        elif before and None not in (before.state_after, step.state_before) and before.state_after != step.state_before:
            yield f"step {step.index} begins at another state than step {before.index} left"
        before = step
    last = before.state_after if before is not None else None
    if last is not None and trajectory.final_state is not None and last != trajectory.final_state:
        yield "the final state is not the one that the last step left"


def _edits(steps: tuple[Step, ...]) -> Iterator[Edit]:
    for step in steps:
        action, done = step.action, step.observation
        if action is None or done is None or not done.ok or step.state_after is None:
            continue
        text = action.arguments.get(_EDITS.get(action.tool, ""))
        path = action.arguments.get("path")
        if isinstance(text, str) and text.strip() and isinstance(path, str):
            yield Edit(step.index, step.state_after, path, text)


def _idle_timeout(step: Step, task: Task | None) -> bool:
    done = step.observation
    untouched = task is not None and step.state_before == task.workspace
    return (
        untouched
        and done is not None
        and done.timed_out
        and step.action is not None
        and step.action.tool == "run_tests"
    )


def _digest(value: object) -> bytes:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode("utf-8", "surrogatepass"), digest_size=12).digest()
