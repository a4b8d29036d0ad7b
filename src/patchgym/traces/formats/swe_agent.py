"""Trajectories of SWE-agent: ``trajectory`` has each action with what came of it, ``history`` the messages.

An action is a command line of the agent's own shell, in text; later versions have native tool calls in ``history``.
Where the two lists tell of the same answers they are read side by side, else the first alone. There are no times of
day.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchgym.records import Action, Fault, Message, Observation, StopReason, Trajectory
from patchgym.traces.content import assistant, parts_of, tool_calls_of
from patchgym.traces.draft import Draft
from patchgym.traces.heads import heads_of
from patchgym.traces.intake import Intake, text_of
from patchgym.traces.jsontext import parsed
from patchgym.traces.values import count_kind, mapping, seconds_of, stream, string

NAME = "swe_agent"
ABOUT = "trajectories of SWE-agent (.traj)"

_KNOWN = {"trajectory", "history", "info", "replay_config", "environment", "instance_id"}
_STOPS = {
    "submitted": StopReason.SUBMITTED,
    "exit_cost": StopReason.TOKEN_LIMIT,
    "exit_context": StopReason.CONTEXT_LIMIT,
    "exit_format": StopReason.PROTOCOL,
    "exit_command_timeout": StopReason.TIME_LIMIT,
    "exit_total_execution_time": StopReason.TIME_LIMIT,
}
_FAULTS = {"exit_api": "policy", "exit_environment_error": "sandbox"}


def recognises(path: Path, head: bytes) -> bool:
    """See ``Reader.recognises``."""
    one = next(iter(heads_of(head)), None)
    if one is None or one.listed or one.has("prompt") or b'"timestamp"' in head:  # this format has no times
        return False
    if one.has("trajectory"):
        return not one.keys.isdisjoint({"history", "info", "environment", "replay_config"}) or b'"thought"' in head
    return one.keys <= _KNOWN and one.has("history") and b'"agent"' in head


def read(path: Path, intake: Intake) -> Iterator[Trajectory]:
    """See ``Reader.read``."""
    document = mapping(intake.document(path))
    draft = _about(document, path)
    steps, history = (
        intake.whole(document[name], name, path.name) if document.get(name) is not None else []
        for name in ("trajectory", "history")
    )
    answers = sum(one.get("role") == "assistant" and one.get("is_demo") is not True for one in history)
    if not steps and not history:
        intake.damaged("no_trajectory", path.name)
        return
    if history and (not steps or answers == len(steps)):
        _from_history(draft, history, steps, intake)
    else:
        _from_steps(draft, history, steps, intake)
    yield _finished(draft, mapping(document.get("info")))


def _about(document: dict[str, Any], path: Path) -> Draft:
    config = document.get("replay_config")
    if isinstance(config, str):
        try:
            config = parsed(config)
        except ValueError:
            config = None
    env, agent = mapping(mapping(config).get("env")), mapping(mapping(config).get("agent"))
    repo = mapping(env.get("repo"))
    named = string(document.get("instance_id")) or string(agent.get("name"))
    info = mapping(document.get("info"))
    version = string(info.get("swe_agent_version"))
    draft = Draft(
        id=path.name.removesuffix(".json").removesuffix(".traj") or path.name,
        format=NAME,
        file=path.name,
        task_id=string(document.get("instance_id")),
        session=named,
        agent=f"swe-agent {version}" if version else "swe-agent",
        model=string(mapping(agent.get("model")).get("name")),
        repo=string(repo.get("github_url")) or string(repo.get("repo_name")) or string(repo.get("path")),
        base_commit=string(repo.get("base_commit")),
    )
    for key in document.keys() - _KNOWN:
        count_kind(draft.left_out, "", key)
    return draft


def _from_history(draft: Draft, history: list[dict[str, Any]], steps: list[dict[str, Any]], intake: Intake) -> None:
    """From the messages, with what the steps tell besides."""
    at, waits = -1, False
    for message in history:
        role = message.get("role")
        parts = parts_of(message.get("content"), intake, draft.left_out)
        if role == "assistant" and message.get("is_demo") is not True:
            _unanswered(draft, steps, at if waits else -1)
            at, waits = at + 1, True
            _answer(draft, message, steps[at] if at < len(steps) else {}, intake)
        elif role == "tool" or (role == "user" and waits):
            ids = message.get("tool_call_ids")
            call_id = string(message.get("tool_call_id")) or (string(ids[0]) if isinstance(ids, list) and ids else None)
            told = Message(
                role="tool" if call_id else "user",
                content=parts.content,
                tool_call_id=call_id,
                attachments=tuple(parts.attachments),
            )
            step = steps[at] if waits and at < len(steps) else {}
            waits = False
            if not draft.observed(_observation(step, parts.content), call_id, told):
                draft.given(told)
                draft.left_out["results_without_a_call"] += 1
        elif role in ("system", "user", "tool", "assistant"):
            told_as = role if role in ("system", "assistant") else "user"
            draft.given(
                Message.model_validate(
                    {"role": told_as, "content": parts.content, "attachments": tuple(parts.attachments)}
                )
            )
        else:
            count_kind(draft.left_out, "message_of_role", role)
    _unanswered(draft, steps, at if waits else -1)


def _unanswered(draft: Draft, steps: list[dict[str, Any]], at: int) -> None:
    """What came of a step that no message tells of: mostly of the last one."""
    if 0 <= at < len(steps) and isinstance(steps[at].get("observation"), str):
        shown = steps[at]["observation"]
        waiting = draft.waiting
        draft.observed(_observation(steps[at], shown), waiting[-1] if waiting else None)


def _from_steps(draft: Draft, history: list[dict[str, Any]], steps: list[dict[str, Any]], intake: Intake) -> None:
    """From the steps alone, after the messages with which the history begins."""
    told = 0
    for message in history:
        if message.get("role") not in ("system", "user"):
            break
        told += 1
        parts = parts_of(message.get("content"), intake, draft.left_out)
        draft.given(
            Message.model_validate(
                {"role": message["role"], "content": parts.content, "attachments": tuple(parts.attachments)}
            )
        )
    if len(history) > told:
        draft.left_out["messages_of_a_history_that_differs"] += len(history) - told
    for step in steps:
        _answer(draft, {}, step, intake)
        if step.get("observation") is not None:
            draft.observed(_observation(step, text_of(step["observation"])))


def _answer(draft: Draft, message: dict[str, Any], step: dict[str, Any], intake: Intake) -> None:
    content = message.get("content", step.get("response", step.get("thought")))
    calls = tool_calls_of(message.get("tool_calls", step.get("tool_calls")), draft.left_out, f"step-{draft.steps}")
    parts = parts_of(content, intake, draft.left_out)
    thoughts = parts_of(message.get("thinking_blocks", step.get("thinking_blocks")), intake, draft.left_out)
    line = step.get("action", message.get("action"))
    actions = None
    if not calls:
        actions = [Action(tool="bash", arguments={"command": line})] if isinstance(line, str) and line.strip() else []
    draft.answered(
        assistant(parts, calls, thoughts.reasoning),
        actions,
        parse_error=None if actions or calls else "The answer asks for nothing.",
    )


def _observation(step: dict[str, Any], shown: str) -> Observation:
    output = step.get("observation")
    return Observation(
        shown=shown,
        stdout=stream(output) if isinstance(output, str) else None,
        seconds=seconds_of(step.get("execution_time")),
    )


def _finished(draft: Draft, info: dict[str, Any]) -> Trajectory:
    """The trajectory. A submission may be a diff, a flag, or null."""
    status, submission = text_of(info.get("exit_status")), info.get("submission")
    patch = (
        submission if isinstance(submission, str) and ("diff --git" in submission or "\n+++ " in submission) else None
    )
    if submission and patch is None:
        draft.left_out["submission_that_is_no_diff"] += 1
    for key in info.keys() - {"exit_status", "submission", "model_stats", "swe_agent_version"}:
        if info[key]:
            count_kind(draft.left_out, "info", key)
    reason = status.removeprefix("submitted (").removesuffix(")") if status != "submitted" else status
    fault = None
    if reason in _FAULTS:
        fault = Fault.model_validate({"kind": reason, "where": _FAULTS[reason], "message": ""})
    elif reason and reason not in _STOPS:
        count_kind(draft.left_out, "exit_status", status)
    return draft.finished(
        stop=StopReason.INFRASTRUCTURE if fault else _STOPS.get(reason), final_patch=patch, fault=fault
    )
