"""Actions that a model wrote as text, and what a text says of how a command ended."""

import re

from patchgym.records import Action

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
_ENDED = re.compile(r"\[(?:The )?[Cc]ommand (?:completed|finished) with exit code (-?\d{1,9})\.?\]")
_RETURNED = re.compile(r"\s*<returncode>(-?\d{1,9})</returncode>")
_TAIL = 400
_TOLD = ("OBSERVATION:", "EXECUTION RESULT of ", "<returncode>")
_PROMPT = "bash-$"


def xml_calls(text: str) -> list[Action]:
    """Calls of the form ``<function=NAME><parameter=KEY>VALUE</parameter></function>``. Values stay text; one line end
    on either side of a value is no part of it. What is not closed is no call."""
    found: list[Action] = []
    at = text.find("<function=")
    while at >= 0:
        head_end = text.find(">", at)
        end = text.find("</function>", at)
        if head_end < 0 or end < 0:
            break
        name = text[at + len("<function=") : head_end]
        if head_end < end and _NAME.fullmatch(name):
            found.append(Action(tool=name, arguments=dict(_parameters(text[head_end + 1 : end]))))
        at = text.find("<function=", end)
    return found


def _parameters(body: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = body.find("<parameter=")
    while at >= 0:
        head_end = body.find(">", at)
        end = body.find("</parameter>", at)
        if head_end < 0 or end < head_end:
            break
        value = body[head_end + 1 : end].removeprefix("\n").removesuffix("\n")
        found.append((body[at + len("<parameter=") : head_end], value))
        at = body.find("<parameter=", end)
    return found


def fenced_command(text: str, answer: str) -> Action | None:
    """The last fenced block of a text, as a command, where ``answer`` looks like what a shell says of it; else None."""
    if not (answer.lstrip().startswith(_TOLD) or answer.rstrip().endswith(_PROMPT)):
        return None
    end = text.rfind("```")
    start = text.rfind("```", 0, max(end, 0))
    if start < 0 or end <= start:
        return None
    _, line_end, command = text[start + 3 : end].partition("\n")
    return Action(tool="bash", arguments={"command": command.removesuffix("\n")}) if line_end else None


def is_told(text: str) -> bool:
    """Whether a user's message says that it is the outcome of a call."""
    return text.lstrip().startswith(_TOLD)


def exit_code_in(text: str) -> int | None:
    """The exit code that an outcome tells in words: at its beginning (mini-swe-agent) or its end (OpenHands)."""
    found = _RETURNED.match(text) or _ENDED.search(text[-_TAIL:])
    return int(found[1]) if found else None
