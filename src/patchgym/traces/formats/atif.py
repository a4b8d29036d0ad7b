"""ATIF, Harbor's format (versions 1.0 to 1.8): a JSON document a trajectory, or one a line.

What patchgym itself wrote carries, under ``extra.patchgym``, all that ATIF has no place for: read again, it is the same
trajectory. The ids of a prompt are those that came anew since the step before.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from patchgym.records import Message, Observation, SpawnedBy, StepTokens, ToolCall, Trajectory, Usage
from patchgym.traces.content import text_and_more
from patchgym.traces.difference import with_difference
from patchgym.traces.draft import Draft
from patchgym.traces.formats.conversation import tools_of
from patchgym.traces.formats.rows import is_document, rows
from patchgym.traces.glance import Glance
from patchgym.traces.intake import Intake, count_of, moment, text_of

NAME = "atif"
ABOUT = "Harbor's trajectory interchange format, ATIF 1.0 to 1.8 (JSON, or one document a line)"
OWN = "patchgym"

_VERSION = re.compile(rb'"schema_version"\s*:\s*"ATIF-v')
_KNOWN = frozenset({"schema_version", "session_id", "trajectory_id", "agent", "steps", "subagent_trajectories"})
_STEP = frozenset({"step_id", "timestamp", "source", "model_name", "message", "reasoning_content", "tool_calls"}) | {
    "observation",
    "metrics",
    "is_copied_context",
}
_METRICS = frozenset({"prompt_tokens", "completion_tokens", "cached_tokens"}) | {
    "prompt_token_ids",
    "completion_token_ids",
    "logprobs",
}
_ROLES: Mapping[str, Any] = {"system": "system", "user": "user", "agent": "assistant"}


def recognises(path: Path, head: bytes) -> bool:
    """See ``Reader.recognises``."""
    return _VERSION.search(head) is not None


def read(path: Path, intake: Intake) -> Iterator[Trajectory]:
    """See ``Reader.read``."""
    lines = not is_document(path) and path.suffix != ".json"
    for number, (where, document) in enumerate(rows(path, intake), start=1):
        if not isinstance(document.get("steps"), list):
            intake.damaged("no_steps", where)
            continue
        yield from trajectories_of(document, f"{path.stem}-{number}" if lines else path.stem, path.name, where, intake)


def trajectories_of(document: dict[str, Any], name: str, file: str, where: str, intake: Intake) -> Iterator[Trajectory]:
    """The trajectory of a document and, after it, those of the sub-agents that lie in it."""
    own = _restored(document, where, intake)
    trajectory = own or _Reading(document, name, file, intake).trajectory()
    yield trajectory
    inner = document.get("subagent_trajectories")
    for index, part in enumerate(inner if isinstance(inner, list) else []):
        if isinstance(part, dict) and isinstance(part.get("steps"), list):
            for found in trajectories_of(part, f"{name}-{index + 1}", file, where, intake):
                step = _spawning_step(document, part)
                spawned = SpawnedBy(trajectory=trajectory.id, step=step)
                yield found if found.spawned_by else found.model_copy(update={"spawned_by": spawned})
        else:
            intake.damaged("no_steps", where)


def plain_trajectory(document: dict[str, Any]) -> Trajectory:
    """The trajectory of a document by what ATIF itself says, as if nobody knew ``extra.patchgym``."""
    return _Reading(document, "", "", Glance()).trajectory()


def _restored(document: dict[str, Any], where: str, intake: Intake) -> Trajectory | None:
    """The very trajectory that patchgym wrote; None where it did not, or the document was changed since."""
    extra = document.get("extra")
    own = extra.get(OWN) if isinstance(extra, dict) else None
    if not isinstance(own, dict):
        return None
    if own.get("schema_version") != Trajectory.VERSION:
        intake.damaged("own_fields_of_another_version", where, "what ATIF itself says is read")
        return None
    try:
        plain = json.loads(plain_trajectory(document).to_line())
        changes = [change for step in document["steps"] for change in _own_of_step(step)]
        plain["steps"] = [with_difference(step, change) for step, change in zip(plain["steps"], changes, strict=True)]
        found = Trajectory.model_validate(with_difference(plain, own.get("trajectory", {})))
    except (ValueError, ValidationError) as error:
        intake.damaged("own_fields_do_not_fit", where, str(error).splitlines()[0][:200])
        return None
    if found.content_hash() != own.get("content_hash"):
        intake.damaged("own_fields_do_not_fit", where, "the document was changed since it was written")
        return None
    return found


def _own_of_step(step: object) -> list[Any]:
    extra = step.get("extra") if isinstance(step, dict) else None
    own = extra.get(OWN) if isinstance(extra, dict) else None
    return own if isinstance(own, list) else []


def _spawning_step(document: dict[str, Any], part: dict[str, Any]) -> int | None:
    """The index of the step whose outcome names a sub-agent's trajectory, which ``trajectory_id`` alone does."""
    name = text_of(part.get("trajectory_id"))
    index = -1
    for step in document["steps"]:
        if not isinstance(step, dict):
            continue
        if step.get("source") == "agent" and not step.get("is_copied_context"):
            index += max(1, len(_objects(step.get("tool_calls"))))
        for result in _results(step):
            refs = result.get("subagent_trajectory_ref")
            for ref in _objects(refs if isinstance(refs, list) else [refs]):
                if name and text_of(ref.get("trajectory_id")) == name:
                    return index if index >= 0 else None
    return None


class _Reading:
    """One document as a draft is told of it."""

    def __init__(self, document: dict[str, Any], name: str, file: str, intake: Intake) -> None:
        agent = document.get("agent")
        agent = agent if isinstance(agent, dict) else {}
        session = text_of(document.get("trajectory_id") or document.get("session_id"))
        parent = _nested(agent, "extra", "parent_session_id")
        self._document, self._intake = document, intake
        self._context: list[int] = []
        self._draft = Draft(
            id=session or name,
            format=NAME,
            file=file,
            session=session or None,
            agent=" ".join(text_of(agent[key]) for key in ("name", "version") if agent.get(key)) or None,
            model=text_of(agent.get("model_name")) or None,
            tools=tools_of(agent.get("tool_definitions")),
            spawned_by=SpawnedBy(trajectory=text_of(parent), step=None) if parent else None,
        )
        self._count(document, _KNOWN, "")
        self._count(agent, {"name", "version", "model_name", "tool_definitions"}, "agent_")

    def trajectory(self) -> Trajectory:
        for step in self._document["steps"]:
            if isinstance(step, dict) and step.get("source") in _ROLES:
                self._step(step)
            else:
                self._draft.left_out["steps_without_a_source"] += 1
        return self._draft.finished()

    def _step(self, step: dict[str, Any]) -> None:
        self._count(step, _STEP, "step_")
        text, attachments = text_and_more(step.get("message"), self._intake, self._draft.left_out)
        role = _ROLES[step["source"]]
        if role == "assistant" and not step.get("is_copied_context"):
            self._answer(step, text, attachments)
            return
        calls = self._calls(step) if role == "assistant" else ()
        if text or attachments or calls:
            self._draft.given(Message(role=role, content=text, tool_calls=calls, attachments=attachments))
        for result in _results(step):
            self._left_of(result)
            content, more = text_and_more(result.get("content"), self._intake, self._draft.left_out)
            if content or more:
                call = text_of(result.get("source_call_id")) or None
                told = Message(role="tool" if call else role, content=content, tool_call_id=call, attachments=more)
                self._draft.given(told.model_copy(update={"role": "user"}) if told.role == "assistant" else told)

    def _answer(self, step: dict[str, Any], text: str, attachments: Any) -> None:
        calls = self._calls(step)
        metrics = step.get("metrics")
        metrics = metrics if isinstance(metrics, dict) else {}
        self._count(metrics, _METRICS, "metrics_")
        tokens = self._tokens(metrics)
        prompt, sampled = count_of(metrics.get("prompt_tokens")), count_of(metrics.get("completion_tokens"))
        self._draft.answered(
            Message(
                role="assistant",
                content=text,
                reasoning=text_of(step.get("reasoning_content")) or None,
                tool_calls=calls,
                sampled_ids=tokens.sampled_ids if tokens else None,
                attachments=attachments,
            ),
            model=text_of(step.get("model_name")) or None,
            tokens=tokens,
            usage=Usage(
                prompt_tokens=prompt, sampled_tokens=sampled, cached_tokens=count_of(metrics.get("cached_tokens"))
            )
            if prompt is not None and sampled is not None
            else None,
            started_at=moment(step.get("timestamp")),
        )
        for result in _results(step):
            self._left_of(result)
            content, more = text_and_more(result.get("content"), self._intake, self._draft.left_out)
            call = text_of(result.get("source_call_id")) or (calls[0].id if len(calls) == 1 else None)
            message = Message(role="tool" if call else "user", content=content, tool_call_id=call, attachments=more)
            if not self._draft.observed(Observation(shown=content), call, message):
                self._draft.left_out["outcomes_of_no_call"] += 1
                self._draft.given(message)

    def _calls(self, step: dict[str, Any]) -> tuple[ToolCall, ...]:
        return tuple(
            ToolCall(
                id=text_of(call.get("tool_call_id")) or f"unnamed-{self._draft.steps + position + 1}",
                name=text_of(call.get("function_name")),
                arguments=text_of(call.get("arguments") if call.get("arguments") is not None else {}),
            )
            for position, call in enumerate(_objects(step.get("tool_calls")))
        )

    def _tokens(self, metrics: dict[str, Any]) -> StepTokens | None:
        whole, sampled = _ids(metrics.get("prompt_token_ids")), _ids(metrics.get("completion_token_ids"))
        if whole is None or sampled is None:
            self._context = []
            if metrics.get("completion_token_ids"):
                self._draft.left_out["token_ids_without_their_prompt"] += 1
            return None
        known = len(self._context)
        continues = whole[:known] == self._context
        restart = not continues or (known == 0 and self._draft.steps > 0)
        logprobs = _numbers(metrics.get("logprobs"))
        if metrics.get("logprobs") is not None and (logprobs is None or len(logprobs) != len(sampled)):
            self._draft.left_out["logprobs_that_do_not_fit"] += 1
            logprobs = None
        self._context = whole + sampled
        return StepTokens(
            prompt_ids=tuple(whole if restart else whole[known:]),
            sampled_ids=tuple(sampled),
            logprobs=logprobs,
            mask=(1,) * len(sampled),
            restart=restart,
        )

    def _left_of(self, result: dict[str, Any]) -> None:
        self._count(result, {"source_call_id", "content"}, "outcome_")

    def _count(self, found: dict[str, Any], known: frozenset[str] | set[str], prefix: str) -> None:
        """Count what is no part of a trajectory; patchgym's own fields are none of it."""
        for key, value in found.items():
            if key not in known and value not in (None, "", [], {}) and not (key == "extra" and _only_own(value)):
                self._draft.left_out[f"{prefix}{key}"] += 1


def _only_own(value: object) -> bool:
    return isinstance(value, dict) and value.keys() <= {OWN}


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _results(step: dict[str, Any]) -> list[dict[str, Any]]:
    return _objects(_nested(step, "observation", "results"))


def _nested(value: object, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _ids(value: object) -> list[int] | None:
    return value if isinstance(value, list) and set(map(type, value)) <= {int} else None


def _numbers(value: object) -> tuple[float, ...] | None:
    return tuple(map(float, value)) if isinstance(value, list) and set(map(type, value)) <= {int, float} else None
