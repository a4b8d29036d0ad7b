"""Events of OpenHands, version 0: ``action`` or ``observation`` says what one is, and ``cause`` what it answers."""

from typing import Any

from patchgym.records import Action, Message, Observation, StopReason
from patchgym.traces.content import assistant, parts_of, tool_calls_of, tool_specs, usage_of
from patchgym.traces.draft import Draft
from patchgym.traces.intake import Intake, moment, text_of
from patchgym.traces.values import count_kind, flag, mapping, objects, stream, string, whole_number

_QUIET = frozenset({"change_agent_state", "recall", "null", "pause", "resume", "condensation_request", "start_hooks"})
_FRAME = frozenset({"id", "timestamp", "source", "message", "cause", "action", "tool_call_metadata", "llm_metrics"})
_FRAME_OF_ARGUMENTS = frozenset({"thought", "confirmation_state", "is_confirmed", "action_risk", "security_risk"})
_STATES = {"finished": StopReason.SUBMITTED}
_TIMED_OUT = ("timed out after", "no new output after")


class OldEvents:
    """Takes events in their order."""

    def __init__(self, draft: Draft, intake: Intake) -> None:
        self.stop: StopReason | None = None
        self._draft = draft
        self._intake = intake
        self._response: str | None = None
        self._calls: dict[str, str] = {}
        self._may_be_answered = True  # whether the next message, if nobody is named, is a user's

    def take(self, event: dict[str, Any]) -> None:
        """An event."""
        action, observation = string(event.get("action")), string(event.get("observation"))
        if observation is not None:
            self._observation(event, observation)
        elif action is not None:
            self._action(event, action)
        else:
            self._intake.damaged("event_of_no_kind", self._draft.file)

    def _action(self, event: dict[str, Any], kind: str) -> None:
        arguments = mapping(event["args"]) if "args" in event else {k: v for k, v in event.items() if k not in _FRAME}
        if kind == "system":
            self._draft.given(Message(role="system", content=text_of(arguments.get("content"))))
            self._draft.tools = tool_specs(arguments.get("tools"))
            version = string(arguments.get("openhands_version"))
            self._draft.agent = f"openhands {version}" if version else self._draft.agent
        elif kind == "condensation":
            self._condensed(arguments)
        elif kind in _QUIET or event.get("source") == "environment":
            count_kind(self._draft.left_out, "action", kind)
        elif kind == "message" and self._is_of_user(event):
            self._may_be_answered = False
            content: list[object] = [arguments.get("content")]
            urls = arguments.get("image_urls", arguments.get("images_urls"))
            content += [{"image_urls": urls}] if isinstance(urls, list) and urls else []
            parts = parts_of(content, self._intake, self._draft.left_out)
            self._draft.given(Message(role="user", content=parts.content, attachments=tuple(parts.attachments)))
        else:
            self._may_be_answered = kind == "message"
            self._answer(event, kind, arguments)

    def _is_of_user(self, event: dict[str, Any]) -> bool:
        """Who wrote a message. The oldest rows do not say: there, a user's is what begins, or follows an agent's."""
        source = event.get("source")
        return source == "user" or (source is None and self._may_be_answered)

    def _answer(self, event: dict[str, Any], kind: str, arguments: dict[str, Any]) -> None:
        draft, about = self._draft, mapping(event.get("tool_call_metadata"))
        response = mapping(about.get("model_response"))
        choice = next(iter(objects(response.get("choices"))), {})
        name = string(response.get("id"))
        call_id = string(about.get("tool_call_id"))
        event_id = text_of(event.get("id"))
        self._calls[event_id] = call_id or f"event-{event_id or draft.steps}"
        if kind == "finish":
            self.stop = StopReason.SUBMITTED
        if call_id is not None and choice:
            if name is not None and name == self._response and draft.step_of(call_id) is not None:
                return  # the answer with all of its calls was told with its first one
            self._response = name
            message = mapping(choice.get("message"))
            parts = parts_of(message.get("content"), self._intake, draft.left_out)
            calls = tool_calls_of(message.get("tool_calls"), draft.left_out, f"event-{event_id}")
            said = assistant(parts, calls, string(message.get("reasoning_content")))
            usage = usage_of(response.get("usage"))
            model = string(response.get("model"))
            draft.model = draft.model or model
            draft.answered(said, usage=usage, model=model, started_at=moment(event.get("timestamp")))
            return
        text = text_of(arguments.get("content") if kind == "message" else arguments.get("thought"))
        kept = {key: value for key, value in arguments.items() if key not in _FRAME_OF_ARGUMENTS}
        asked = [] if kind == "message" else [Action(tool=kind, arguments=kept, call_id=self._calls[event_id])]
        draft.answered(Message(role="assistant", content=text), asked, started_at=moment(event.get("timestamp")))

    def _observation(self, event: dict[str, Any], kind: str) -> None:
        extras = mapping(event.get("extras"))
        if kind == "agent_state_changed":
            state = str(extras.get("agent_state"))
            self.stop = _STATES.get(state, self.stop)
            if "iteration" in str(extras.get("reason")).lower():
                self.stop = StopReason.TURN_LIMIT
        if kind in _QUIET or kind == "agent_state_changed":
            count_kind(self._draft.left_out, "observation", kind)
            return
        about = mapping(event.get("tool_call_metadata"))
        cause = self._calls.get(text_of(event["cause"])) if event.get("cause") is not None else None
        call_id = string(about.get("tool_call_id")) or cause
        content: list[object] = [event.get("content")]
        content += (
            [{"image_urls": extras["image_urls"]}]
            if isinstance(extras.get("image_urls"), list) and extras["image_urls"]
            else []
        )
        parts = parts_of(content, self._intake, self._draft.left_out)
        seen = _seen(event, kind, extras, parts.content)
        role = "tool" if string(about.get("tool_call_id")) else "user"
        message = Message.model_validate(
            {
                "role": role,
                "content": parts.content,
                "tool_call_id": call_id if role == "tool" else None,
                "attachments": tuple(parts.attachments),
            }
        )
        if call_id is None and event.get("id") is None:
            call_id = next(iter(self._draft.waiting), None)
        if call_id is None or not self._draft.observed(seen, call_id, message):
            self._draft.given(message)
            count_kind(self._draft.left_out, "observation_of_no_action", kind)

    def _condensed(self, arguments: dict[str, Any]) -> None:
        summary = string(arguments.get("summary"))
        if summary is None:
            self._draft.left_out["action_condensation_without_a_summary"] += 1
            return
        self._draft.compacted()
        self._draft.given(Message(role="user", content=summary))


def _seen(event: dict[str, Any], kind: str, extras: dict[str, Any], shown: str) -> Observation:
    """What came of an action. An exit code of -1 means that the command had not ended."""
    about = mapping(extras.get("metadata"))
    code = whole_number(about.get("exit_code", extras.get("exit_code", event.get("exit_code"))))
    suffix = text_of(about.get("suffix")) or shown[-300:]
    return Observation(
        shown=f"{text_of(about.get('prefix'))}{shown}{text_of(about.get('suffix'))}",
        ok=False if kind in ("error", "user_rejected") else (flag(event.get("success")) if code is None else True),
        exit_code=None if code == -1 else code,
        stdout=stream(shown) if kind == "run" else None,
        timed_out=code == -1 and any(words in suffix for words in _TIMED_OUT),
        ending="interrupted" if kind == "user_rejected" else "none",
    )
