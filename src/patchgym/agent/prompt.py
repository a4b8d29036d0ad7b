"""What the agent is told at the start, and how its actions are read, in either protocol."""

import json
from collections.abc import Mapping, Sequence

from patchgym.agent.tools import TOOLS, Tool
from patchgym.policy import ProtocolError, parse_action
from patchgym.records import Action, Message, Service, TaskView

_ROLE = "You fix a bug in a Python repository. Do not edit tests."

_BRIEFING = "Lines that the failing tests run, and other tests least, the likeliest first:"
_NATIVE = "Every answer is one tool call: look at the code, edit it, run the tests, and submit when they pass."
_PLAIN = "Each turn, write one action: a line 'tool: NAME', then a line 'name: value' for each argument. Tools:\n"
_PLAIN_WITH_BLOCKS = """Each turn, write one action. A value of several lines stands between <<< and >>>:
tool: edit_file
path: shop/cart.py
old:
<<<
    total = 1
>>>
new:
<<<
    total = 0
>>>
Tools:
"""


def opening(
    view: TaskView, *, native: bool, tools: Mapping[str, Tool] = TOOLS, briefing: str = ""
) -> tuple[Message, ...]:
    """The system message and the instruction, with what was found out beforehand (``patchgym.agent.briefing``). With
    ``native`` the tools are told of by the endpoint itself."""
    plain = _PLAIN_WITH_BLOCKS if "edit_file" in tools else _PLAIN
    system = f"{_ROLE} {_NATIVE}" if native else f"{_ROLE} {plain}" + "\n".join(map(_tool_line, tools.values()))
    found = [_BRIEFING, briefing] if briefing else []
    told = "\n".join([view.instruction, *map(_service_line, view.environment.services), *found])
    return (Message(role="system", content=system), Message(role="user", content=told))


def read_action(message: Message, *, native: bool, tools: Mapping[str, Tool] = TOOLS) -> Action:
    """The action of an assistant message: its first native tool call, or the call that it wrote out as JSON; where
    ``native`` is not so, that of the plain-text protocol.

    Raises:
        ProtocolError: there is none that can be read.
    """
    if not native:
        return parse_action(message.content)
    if not message.tool_calls:
        return _written_call(message.content, tools)
    call = message.tool_calls[0]
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        raise ProtocolError(f"The arguments of {call.name} are not JSON.") from None
    if not isinstance(arguments, dict):
        raise ProtocolError(f"The arguments of {call.name} are no JSON object.")
    return Action(tool=call.name, arguments=arguments, call_id=call.id)


def _written_call(content: str, tools: Mapping[str, Tool]) -> Action:
    """A tool call that is left in the text, as servers do that do not know the model's format: the first JSON object in
    it that names one of the tools and its arguments."""
    start = content.find("{")
    while start >= 0:
        call, end = _object_at(content, start)
        match call:
            case {"name": str(name), "arguments": dict(arguments)} if name in tools:
                return Action(tool=name, arguments=arguments)
            case _:
                start = content.find("{", end)
    raise ProtocolError(f"No tool call found: call one of the tools {', '.join(tools)}.")


def _object_at(text: str, start: int) -> tuple[object, int]:
    """The JSON value at an offset and the offset behind it; None and the next offset where there is none."""
    try:
        found, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start + 1
    return found, end


def answers(message: Message, shown: str) -> tuple[Message, ...]:
    """The messages that carry an observation back: one for each tool call, of which only the first is done, or one of
    the user."""
    calls: Sequence[str] = [call.id for call in message.tool_calls]
    if not calls:
        return (Message(role="user", content=shown),)
    first, *others = calls
    refused = "Not done: one tool call a turn."
    return (
        Message(role="tool", content=shown, tool_call_id=first),
        *(Message(role="tool", content=refused, tool_call_id=call) for call in others),
    )


def _service_line(service: Service) -> str:
    variables = ", ".join(f"{name}={value}" for name, value in service.variables.items())
    return f"{service.name} is running for you and the tests{f': {variables}' if variables else ''}."


def _tool_line(tool: Tool) -> str:
    arguments = [*tool.required, *(f"[{argument}]" for argument in tool.optional)]
    return f"{' '.join([tool.name, *arguments])} - {tool.description}"
