"""Events of OpenHands, version 1: ``kind`` says what one is."""

from collections.abc import Mapping
from typing import Any

from patchgym.records import Message, Observation, StepTokens, StopReason, ToolCall, Usage
from patchgym.traces.content import assistant, parts_of, tool_calls_of, tool_specs
from patchgym.traces.draft import Draft, Mark
from patchgym.traces.intake import Intake, moment, text_of
from patchgym.traces.values import count_kind, flag, mapping, stream, string, whole_number

_RUNS = frozenset({"ExecuteBashObservation", "TerminalObservation", "BashObservation", "CmdOutputObservation"})
_OUTCOMES = frozenset({"ObservationEvent", "AgentErrorEvent", "UserRejectObservation"})
_ROOT = "root"


class Events:
    """Takes events in their order. ``usages`` and ``seconds`` are by the id of the model's response."""

    def __init__(self, draft: Draft, intake: Intake, usages: Mapping[str, Usage], seconds: Mapping[str, float]) -> None:
        self.stop: StopReason | None = None
        self._draft = draft
        self._intake = intake
        self._usages = usages
        self._seconds = seconds
        self._response: str | None = None
        self._places: dict[str, Mark] = {}
        self._last: str | None = None

    def take(self, event: dict[str, Any]) -> None:
        """An event."""
        self._follow(event)
        kind = str(event["kind"])
        if kind == "ActionEvent":
            self._action(event)
        elif kind in _OUTCOMES:
            self._outcome(event, kind)
        elif kind == "MessageEvent":
            self._message(event)
        elif kind == "SystemPromptEvent":
            self._system(event)
        elif kind == "Condensation":
            self._condensed(event)
        elif kind == "TokenEvent":
            self._tokens(event)
        else:
            if kind == "ConversationErrorEvent" and "MaxIterations" in str(event.get("code")):
                self.stop = StopReason.TURN_LIMIT
            count_kind(self._draft.left_out, "event", kind)
        name = string(event.get("id"))
        if name is not None:
            self._places[name] = self._draft.mark()
            self._last = name

    def _follow(self, event: dict[str, Any]) -> None:
        """Go back, where an event follows another one than the last."""
        parent = event.get("parent_id")
        if not isinstance(parent, str) or parent == self._last:
            return
        place = self._places.get(parent)
        if place is not None and place != self._draft.mark():
            self._draft.back_to(place)
        elif place is None and parent.strip("_").lower().startswith(_ROOT) and self._draft.steps:
            self._draft.back_to(Mark(None, (), False))
        elif place is None:
            self._draft.left_out["links_to_events_that_are_not_there"] += 1

    def _action(self, event: dict[str, Any]) -> None:
        """One call of a response; the further ones of the same response are events of their own."""
        call = mapping(event.get("tool_call"))
        calls = tool_calls_of([call], self._draft.left_out, f"event-{event.get('id')}") if call else ()
        if not calls:
            action = {key: value for key, value in mapping(event.get("action")).items() if key != "kind"}
            named = string(event.get("tool_name")) or string(mapping(event.get("action")).get("kind")) or "unnamed"
            calls = (ToolCall(id=f"event-{event.get('id')}", name=named, arguments=text_of(action)),)
        told = string(event.get("tool_call_id"))
        if told is not None and calls[0].id != told:
            calls = (calls[0].model_copy(update={"id": told}),)
        if calls[0].name == "finish":
            self.stop = StopReason.SUBMITTED
        self._answer(event, event.get("thought"), event, calls)

    def _answer(
        self, event: dict[str, Any], content: object, thinker: dict[str, Any], calls: tuple[ToolCall, ...]
    ) -> None:
        parts = parts_of(content, self._intake, self._draft.left_out)
        message = assistant(parts, calls, self._reasoning(thinker))
        response = string(event.get("llm_response_id"))
        if response is not None and response == self._response and self._draft.extend_answer(message, meanwhile=True):
            return
        self._response = response
        self._draft.answered(
            message,
            usage=self._usages.get(str(response)),
            sampling_seconds=self._seconds.get(str(response)),
            started_at=moment(event.get("timestamp")),
        )

    def _reasoning(self, thinker: dict[str, Any]) -> str | None:
        """What the model thought: the providers' own blocks hold the same as ``reasoning_content``, where both are."""
        blocks = parts_of(thinker.get("thinking_blocks"), self._intake, self._draft.left_out)
        item = mapping(thinker.get("responses_reasoning_item"))
        if string(item.get("encrypted_content")):
            self._draft.left_out["encrypted_reasoning"] += 1
        listed = [text_of(one) for key in ("summary", "content") for one in item.get(key) or [] if isinstance(one, str)]
        return string(thinker.get("reasoning_content")) or blocks.reasoning or "\n".join(listed) or None

    def _message(self, event: dict[str, Any]) -> None:
        message = mapping(event.get("llm_message"))
        if event.get("source") == "agent":
            calls = tool_calls_of(message.get("tool_calls"), self._draft.left_out, f"event-{event.get('id')}")
            self._answer(event, message.get("content"), message, calls)
            return
        content = [*_listed(message.get("content")), *_listed(event.get("extended_content"))]
        parts = parts_of(content, self._intake, self._draft.left_out)
        self._draft.given(Message(role="user", content=parts.content, attachments=tuple(parts.attachments)))

    def _system(self, event: dict[str, Any]) -> None:
        content = [*_listed(event.get("system_prompt")), *_listed(event.get("dynamic_context"))]
        parts = parts_of(content, self._intake, self._draft.left_out)
        self._draft.given(Message(role="system", content=parts.content))
        self._draft.tools = tool_specs(event.get("tools"))

    def _outcome(self, event: dict[str, Any], kind: str) -> None:
        told = mapping(event.get("observation"))
        if kind == "UserRejectObservation":
            reason = text_of(event.get("rejection_reason"))
            seen = Observation(shown=f"Action rejected: {reason}", ok=False, ending="interrupted")
            message = None
        elif kind == "AgentErrorEvent":
            seen, message = Observation(shown=text_of(event.get("error")), ok=False), None
        else:
            content = [*_listed(_content(told)), *_listed(event.get("extended_content"))]
            parts = parts_of(content, self._intake, self._draft.left_out)
            seen = _observation(told, parts.content)
            message = Message(
                role="tool",
                content=parts.content,
                tool_call_id=string(event.get("tool_call_id")),
                attachments=tuple(parts.attachments),
            )
        if not self._draft.observed(seen, string(event.get("tool_call_id")) or "", message):
            self._draft.left_out["results_without_a_call"] += 1

    def _condensed(self, event: dict[str, Any]) -> None:
        """Older events were forgotten, and a summary stands for them."""
        summary = string(event.get("summary"))
        if summary is None:
            self._draft.left_out["event_condensation_without_a_summary"] += 1
            return
        self._draft.compacted()
        self._draft.given(Message(role="user", content=summary))

    def _tokens(self, event: dict[str, Any]) -> None:
        prompt, sampled = event.get("prompt_token_ids"), event.get("response_token_ids")
        if not _ids(prompt) or not _ids(sampled):
            self._intake.damaged("broken_token_ids", self._draft.file)
            return
        tokens = StepTokens(
            prompt_ids=tuple(prompt or ()),
            sampled_ids=tuple(sampled or ()),
            logprobs=None,
            mask=(1,) * len(sampled or ()),
            restart=True,
        )
        if not self._draft.tokens_of_answer(tokens):
            self._draft.left_out["event_tokenevent"] += 1


def _ids(value: object) -> bool:
    return isinstance(value, list) and all(type(one) is int and 0 <= one < 1 << 53 for one in value)


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _content(told: dict[str, Any]) -> object:
    """What the model was shown: ``content``, or in the first releases ``output`` between a prefix and a suffix, and
    ``error``."""
    if told.get("content"):
        return told["content"]
    about = mapping(told.get("metadata"))
    error = told.get("error")
    output = f"{text_of(about.get('prefix'))}{text_of(told.get('output'))}{text_of(about.get('suffix'))}"
    return [part for part in (output, error if isinstance(error, str) else "") if part]


def _observation(told: dict[str, Any], shown: str) -> Observation:
    """What came of an action. An exit code of -1 means that the command had not ended."""
    about, error = mapping(told.get("metadata")), told.get("error")
    runs = str(told.get("kind")) in _RUNS or "exit_code" in told or "exit_code" in about
    code = whole_number(told.get("exit_code", about.get("exit_code"))) if runs else None
    failed = told.get("is_error", error)
    out = string(told.get("output")) or shown
    return Observation(
        shown=shown,
        ok=(True if code is not None else not failed) if isinstance(failed, bool) else (False if failed else None),
        exit_code=None if code == -1 else code,
        stdout=stream(out) if runs else None,
        timed_out=flag(told.get("timeout")) or False,
    )
