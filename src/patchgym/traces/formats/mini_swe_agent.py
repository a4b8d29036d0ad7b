"""Trajectories of mini-swe-agent: ``messages`` as they went to and from the model, and ``info``.

Version 2 parses actions into ``extra`` and tells return codes there; version 1 has a fenced block in the text and
``<returncode>`` in what came of it. Both streams of a command are one. The last message of version 2 has the role
``exit``.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchgym.records import Action, Fault, Message, Observation, StopReason, Trajectory, Usage
from patchgym.traces import items
from patchgym.traces.content import Parts, assistant, parts_of, tool_calls_of, usage_of
from patchgym.traces.draft import Draft
from patchgym.traces.heads import heads_of
from patchgym.traces.intake import Intake, count_of, moment, text_of
from patchgym.traces.values import count_kind, mapping, objects, stream, string, whole_number

NAME = "mini_swe_agent"
ABOUT = "trajectories of mini-swe-agent, versions 1 and 2 (.traj.json)"

_FENCE = re.compile(r"^```(?:mswea_bash_command|bash|sh)[ \t]*\n(.*?)\n?^```[ \t]*$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"\s*(?:<exception>.*?</exception>\s*)?<returncode>(-?\d{1,9})</returncode>", re.DOTALL)
_OUTPUT = re.compile(r"<output>\n?(.*?)\n?</output>", re.DOTALL)
_SIGNS = (b'"mini-swe-agent-', b'"mini_version"', b"minisweagent.")
_TEXT_SIGNS = (b"mswea_bash_command", b"<returncode>")
_STOPS = {
    "Submitted": StopReason.SUBMITTED,
    "TimeExceeded": StopReason.TIME_LIMIT,
    "RepeatedFormatError": StopReason.PROTOCOL,
    "ContextWindowExceededError": StopReason.CONTEXT_LIMIT,
}
_POLICY_FAULTS = re.compile(
    r"(?:InternalServer|RateLimit|ServiceUnavailable|APIConnection|Authentication|BadGateway|API|Timeout|Connection"
    r"|BadRequest|PermissionDenied|NotFound|Overloaded|Connect|ReadTimeout)(?:Error)?"
)


def recognises(path: Path, head: bytes) -> bool:
    """See ``Reader.recognises``."""
    first = next(iter(heads_of(head)), None)
    if first is None:
        return False
    if first.listed:
        return first.has("role", "content") and any(sign in head for sign in _TEXT_SIGNS)
    return first.texts.get("trajectory_format", "").startswith("mini-swe-agent") or (
        not first.keys.isdisjoint({"info", "messages"})
        and not first.has("trajectory")
        and any(sign in head for sign in _SIGNS)
    )


def read(path: Path, intake: Intake) -> Iterator[Trajectory]:
    """See ``Reader.read``."""
    document = intake.document(path)
    if document is None:
        return
    info = mapping(mapping(document).get("info"))
    messages = document if isinstance(document, list) else mapping(document).get("messages")
    listed = intake.whole(messages, "messages", path.name)
    if not isinstance(messages, list):
        return
    run = _Run(mapping(document), info, path, intake)
    for message in listed:
        if run.draft.full:
            intake.damaged("beyond_the_size_limit", path.name)
        else:
            run.take(message)
    yield run.finished()


class _Run:
    """One trajectory."""

    def __init__(self, document: dict[str, Any], info: dict[str, Any], path: Path, intake: Intake) -> None:
        config = mapping(info.get("config"))
        version = string(info.get("mini_version"))
        task = string(document.get("instance_id"))
        self.draft = Draft(
            id=task or path.name.removesuffix(".json").removesuffix(".traj") or path.name,
            format=NAME,
            file=path.name,
            task_id=task,
            agent=f"mini-swe-agent {version}" if version else None,
            model=string(mapping(config.get("model")).get("model_name")),
        )
        self._info = info
        self._config = config
        self._intake = intake
        self._number = 0
        self._exit: dict[str, Any] = {}
        if mapping(mapping(config.get("model")).get("model_kwargs")).keys() & {"temperature", "top_p", "max_tokens"}:
            self.draft.left_out["sampling_parameters"] += 1
        for key in document.keys() - {"info", "messages", "trajectory_format", "instance_id"}:
            count_kind(self.draft.left_out, "", key)

    def take(self, message: dict[str, Any]) -> None:
        """A message."""
        role, self._number = message.get("role"), self._number + 1
        extra = mapping(message.get("extra"))
        if role == "exit":
            self._exit = extra
        elif role == "assistant":
            self._answer(message, extra)
        elif message.get("object") == "response" or isinstance(message.get("output"), list):
            self._response(message, extra)
        elif items.is_output(message):
            self._observation(parts_of(message.get("output"), self._intake, self.draft.left_out), message, extra)
        elif role in ("tool", "user", "system", "developer"):
            parts = parts_of(message.get("content"), self._intake, self.draft.left_out)
            if role in ("tool", "user") and self._observation(parts, message, extra):
                return
            if extra.get("exit_status"):
                self._exit = extra
            if parts.content or parts.attachments:
                told = "system" if role in ("system", "developer") else "user"
                self.draft.given(
                    Message.model_validate(
                        {"role": told, "content": parts.content, "attachments": tuple(parts.attachments)}
                    )
                )
        else:
            count_kind(self.draft.left_out, "message_of_role", role)

    def _answer(self, message: dict[str, Any], extra: dict[str, Any]) -> None:
        left_out = self.draft.left_out
        calls = tool_calls_of(message.get("tool_calls"), left_out, f"message-{self._number}")
        parts = parts_of(message.get("content"), self._intake, left_out)
        said = assistant(parts, calls, string(message.get("reasoning_content")))
        response = mapping(extra.get("response"))
        self._add(said, extra, string(response.get("model")), usage_of(response.get("usage")), response)

    def _response(self, message: dict[str, Any], extra: dict[str, Any]) -> None:
        """An answer as the Responses API gives it."""
        whole = Message(role="assistant", content="")
        for item in objects(message.get("output")):
            part = items.said(item, self._number, self._intake, self.draft.left_out)
            if part is None:
                count_kind(self.draft.left_out, "item", item.get("type"))
                continue
            whole = whole.model_copy(
                update={
                    "content": "\n".join(one for one in (whole.content, part.content) if one),
                    "reasoning": "\n".join(one for one in (whole.reasoning, part.reasoning) if one) or None,
                    "tool_calls": (*whole.tool_calls, *part.tool_calls),
                }
            )
        self._add(whole, extra, string(message.get("model")), usage_of(message.get("usage")), message)

    def _add(
        self, said: Message, extra: dict[str, Any], model: str | None, usage: Usage | None, response: dict[str, Any]
    ) -> None:
        told = moment(extra.get("timestamp")) or moment(response.get("created", response.get("created_at")))
        actions: list[Action] | None = None
        if not said.tool_calls:
            listed = [one["command"] for one in objects(extra.get("actions")) if isinstance(one.get("command"), str)]
            found = listed or _FENCE.findall(said.content)
            actions = [Action(tool="bash", arguments={"command": one}) for one in (found if listed else found[:1])]
            if not listed and len(found) > 1:
                actions = []
        self.draft.model = self.draft.model or model
        self.draft.answered(
            said,
            actions,
            parse_error=None if actions or said.tool_calls else "The answer does not hold one bash block.",
            model=model,
            usage=usage,
            started_at=told,
        )

    def _observation(self, parts: Parts, message: dict[str, Any], extra: dict[str, Any]) -> bool:
        """What came of an action; False where the message tells nothing of one."""
        call_id = string(message.get("tool_call_id")) or string(message.get("call_id"))
        match = _CODE.match(parts.content)
        if call_id is None and "returncode" not in extra and match is None:
            return False
        code = whole_number(extra.get("returncode")) if "returncode" in extra else int(match[1]) if match else None
        output = extra.get("raw_output")
        if not isinstance(output, str):
            found = _OUTPUT.search(parts.content)
            output = found[1] if found else None
        why = text_of(extra.get("exception_info"))
        seen = Observation(
            shown=parts.content,
            ok=None if code is None else not why,
            exit_code=None if code == -1 else code,
            stdout=stream(output) if output is not None else None,
            timed_out="timed out" in why.lower() or "TimeoutExpired" in why,
        )
        told = Message(
            role="tool" if call_id else "user",
            content=parts.content,
            tool_call_id=call_id,
            attachments=tuple(parts.attachments),
        )
        if not self.draft.observed(seen, call_id, told):
            if call_id is None:
                return False
            self.draft.left_out["results_without_a_call"] += 1
        return True

    def finished(self) -> Trajectory:
        """The trajectory."""
        status = string(self._info.get("exit_status")) or string(self._exit.get("exit_status"))
        patch = self._info.get("submission", self._exit.get("submission"))
        fault = None
        if status is not None and status not in _STOPS and _POLICY_FAULTS.fullmatch(status):
            why = string(self._info.get("exception_str")) or string(self._exit.get("exception_str"))
            fault = Fault(kind=status, where="policy", message=why or "")
        if string(self._info.get("traceback")) or string(self._exit.get("traceback")):
            self.draft.left_out["tracebacks"] += 1
        return self.draft.finished(
            stop=StopReason.INFRASTRUCTURE if fault else self._stop(status),
            final_patch=patch if isinstance(patch, str) and patch else None,
            fault=fault,
        )

    def _stop(self, status: str | None) -> StopReason | None:
        """Why it ended. One status stands for the limits of steps and of cost: the counts tell which."""
        if status != "LimitsExceeded":
            if status is not None and status not in _STOPS:
                count_kind(self.draft.left_out, "exit_status", status)
            return _STOPS.get(str(status))
        limit = count_of(mapping(self._config.get("agent")).get("step_limit"))
        calls = count_of(mapping(self._info.get("model_stats")).get("api_calls"))
        return StopReason.TURN_LIMIT if limit and calls is not None and calls >= limit else StopReason.TOKEN_LIMIT
