"""ATIF 1.8, Harbor's format. What ATIF has no place for (states, exit codes, both streams, rewards, sampling
parameters, branches) stands under ``extra.patchgym``, as the difference to what ATIF itself says. Nothing is lost: an
import gives the same trajectory back.

ATIF knows one line of steps. Of a tree, the steps stand in their order, and ``notes`` says so.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from patchgym.records import Message, Step, Trajectory
from patchgym.traces.difference import difference
from patchgym.traces.formats import atif as reader
from patchgym.traces.intake import Intake
from patchgym.traces.writers.chat import chat_tool
from patchgym.traces.writers.writer import Known, Reason, Row, Unwritable

NAME = reader.NAME
ABOUT = "Harbor's trajectory interchange format, ATIF 1.8, with our own fields under extra.patchgym"
COLUMNS: Mapping[str, str] = {}
FOLDER = True
HOLDS: frozenset[str] | None = None
VERSION = "ATIF-v1.8"
OWN_AGENT = "patchgym"
_SOURCES = {"system": "system", "user": "user", "assistant": "agent", "tool": "system"}
_TREE = "A tree, not one line: extra.patchgym of each step names its parent."


def rows(trajectory: Trajectory, known: Known) -> Sequence[Row]:
    """See ``Writer.rows``."""
    if not trajectory.steps:
        raise Unwritable(Reason.NO_STEPS)
    answers = _answers(trajectory.steps)
    document = _document(trajectory, answers)
    plain = json.loads(reader.plain_trajectory(document).to_line())
    whole = json.loads(trajectory.to_line())
    changes = [difference(had, has) for had, has in zip(plain.pop("steps"), whole.pop("steps"), strict=True)]
    written = [step for step in _objects(document["steps"]) if _is_answer(step)]
    at = 0
    for step, answer in zip(written, answers, strict=True):
        own = changes[at : at + len(answer)]
        step["extra"] = {reader.OWN: own}
        at += len(answer)
    document["extra"] = {
        reader.OWN: {
            "schema_version": Trajectory.VERSION,
            "content_hash": trajectory.content_hash(),
            "trajectory": difference(plain, whole),
        }
    }
    return [document]


def read_back(rows: Sequence[Row], intake: Intake) -> Iterator[Trajectory]:
    """See ``Writer.read_back``."""
    for row in rows:
        yield from reader.trajectories_of(row, "", "", "", intake)


def _answers(steps: Sequence[Step]) -> list[list[Step]]:
    """Steps by the message that asked for them."""
    found: list[list[Step]] = []
    for step in steps:
        if step.continues and found:
            found[-1].append(step)
        else:
            found.append([step])
    return found


def _document(trajectory: Trajectory, answers: Sequence[Sequence[Step]]) -> Row:
    """What ATIF itself can say."""
    name, _, version = (trajectory.origin.agent if trajectory.origin and trajectory.origin.agent else "").partition(" ")
    agent: dict[str, JsonValue] = {"name": name or OWN_AGENT, "version": version or "unknown"}
    if trajectory.policy.version is not None:
        agent["model_name"] = trajectory.policy.version
    if trajectory.tools:
        agent["tool_definitions"] = [chat_tool(tool) for tool in trajectory.tools]
    document: Row = {
        "schema_version": VERSION,
        "session_id": (trajectory.origin.session if trajectory.origin else None) or trajectory.id,
        "trajectory_id": trajectory.id,
        "agent": agent,
        "steps": _numbered(_steps(answers, _contexts(trajectory.steps))),
        "final_metrics": _totals(trajectory.steps),
    }
    if any(step.parent != (step.index - 1 if step.index else None) for step in trajectory.steps):
        document["notes"] = _TREE
    return document


def _steps(answers: Sequence[Sequence[Step]], contexts: Mapping[int, list[int]]) -> Iterator[dict[str, JsonValue]]:
    told: list[str] = []
    for number, answer in enumerate(answers):
        prompt = list(answer[0].prompt)
        while told and prompt and prompt[0].content == told[0]:
            del prompt[0], told[0]
        for message in prompt:
            yield _given(message)
        yield _answer(number, answer, contexts)
        told = [step.observation.shown for step in answer if step.observation]


def _given(message: Message) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {"source": _SOURCES[message.role], "message": message.content}
    if message.role == "assistant":
        found["is_copied_context"] = True
    return found


def _answer(number: int, answer: Sequence[Step], contexts: Mapping[int, list[int]]) -> dict[str, JsonValue]:
    head = answer[0]
    found: dict[str, JsonValue] = {"source": "agent", "message": head.message.content}
    if head.started_at is not None:
        found["timestamp"] = head.started_at.isoformat()
    if head.policy_version is not None:
        found["model_name"] = head.policy_version
    if head.message.reasoning is not None:
        found["reasoning_content"] = head.message.reasoning
    calls: list[JsonValue] = []
    results: list[JsonValue] = []
    for position, step in enumerate(answer):
        asks = step.action is not None or len(answer) > 1
        name = _call_name(step, head, number, position)
        if asks:
            calls.append(
                {
                    "tool_call_id": name,
                    "function_name": step.action.tool if step.action else "unreadable",
                    "arguments": dict(step.action.arguments) if step.action else {},
                }
            )
        if step.observation is not None:
            result: dict[str, JsonValue] = {"content": step.observation.shown}
            results.append({"source_call_id": name, **result} if asks else result)
    if calls:
        found["tool_calls"] = calls
    if results:
        found["observation"] = {"results": results}
    metrics = _metrics(head, contexts.get(head.index))
    if metrics:
        found["metrics"] = metrics
    return found


def _call_name(step: Step, head: Step, number: int, position: int) -> str:
    if step.action is not None and step.action.call_id:
        return step.action.call_id
    calls = head.message.tool_calls
    return calls[position].id if position < len(calls) and calls[position].id else f"step-{number}-{position}"


def _metrics(head: Step, context: list[int] | None) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {}
    if head.usage is not None:
        found["prompt_tokens"] = head.usage.prompt_tokens
        found["completion_tokens"] = head.usage.sampled_tokens
        if head.usage.cached_tokens is not None:
            found["cached_tokens"] = head.usage.cached_tokens
    if head.tokens is not None and context is not None:
        found["prompt_token_ids"] = [*context]
        found["completion_token_ids"] = [*head.tokens.sampled_ids]
        if head.tokens.logprobs is not None:
            found["logprobs"] = [*head.tokens.logprobs]
    return found


def _contexts(steps: Sequence[Step]) -> dict[int, list[int]]:
    """The whole prompt of each step that has ids, where those before it are known."""
    prompts: dict[int, list[int]] = {}
    after: dict[int, list[int] | None] = {}
    for step in steps:
        before = [] if step.parent is None else after.get(step.parent)
        if step.tokens is None:
            after[step.index] = before if step.continues else None
        elif step.tokens.restart or before is not None:
            prompt = [*(() if step.tokens.restart else before or ()), *step.tokens.prompt_ids]
            prompts[step.index] = prompt
            after[step.index] = prompt + list(step.tokens.sampled_ids)
        else:
            after[step.index] = None
    return prompts


def _totals(steps: Sequence[Step]) -> dict[str, JsonValue]:
    used = [step.usage for step in steps if step.usage is not None]
    if not used:
        return {"total_steps": len(steps)}
    return {
        "total_prompt_tokens": sum(usage.prompt_tokens for usage in used),
        "total_completion_tokens": sum(usage.sampled_tokens for usage in used),
        "total_steps": len(steps),
    }


def _numbered(steps: Iterator[dict[str, JsonValue]]) -> list[JsonValue]:
    return [{"step_id": number, **step} for number, step in enumerate(steps, start=1)]


def _is_answer(step: Mapping[str, JsonValue]) -> bool:
    return step["source"] == "agent" and not step.get("is_copied_context")


def _objects(value: JsonValue) -> list[dict[str, JsonValue]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
