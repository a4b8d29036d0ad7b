"""What an agent is told: the symptom, as the failing run shows it, and never the change.

Instructions are short, because small models read them: the package, a few failing tests with what each of them says,
and the module that the tracebacks go through, where they show one.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping

from patchgym.testrun import function_of

_TEST_CHARS = 320
_MESSAGE_CHARS = 110
_FRAME = re.compile(r"^(\S+\.py):\d+: in (\S+)$", re.MULTILINE)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def failure_message(traceback: str) -> str:
    """The line of a short pytest traceback that says what went wrong (the first of its last ``E`` block), cut."""
    blocks = re.findall(r"(?:^E .*\n?)+", traceback, re.MULTILINE)
    lines = [line[1:].strip() for line in blocks[-1].splitlines()] if blocks else traceback.strip().splitlines()[-1:]
    message = _ADDRESS.sub("", next((line for line in lines if line), ""))  # addresses differ from run to run
    return message if len(message) <= _MESSAGE_CHARS else message[: _MESSAGE_CHARS - 3].rstrip() + "..."


def frames_of(traceback: str) -> list[tuple[str, str]]:
    """The frames of a short pytest traceback, outermost first: file and function name."""
    return _FRAME.findall(traceback)


def write_instruction(name: str, failures: Mapping[str, str], is_source: Callable[[str], bool]) -> str:
    """The instruction of a task on package ``name``; ``failures`` maps visible failing tests to their tracebacks, the
    most telling first."""
    shown: dict[str, str] = {}
    modules: Counter[str] = Counter()
    for test, traceback in failures.items():
        path, function = function_of(test)
        line = f"- {path}::{function.replace('.', '::')}: {failure_message(traceback)}"
        shown.setdefault(f"{path}::{function}", line)
        sources = [file for file, _ in frames_of(traceback) if is_source(file)]
        modules.update(sources[-1:])  # the innermost is the nearest to the cause
    lines = list(shown.values())
    fitting = [line for count, line in enumerate(lines) if count == 0 or len("".join(lines[: count + 1])) < _TEST_CHARS]
    told = [f"{name} has a bug. {'These tests fail' if len(lines) > 1 else 'This test fails'}:", *fitting]
    if len(lines) > len(fitting):
        told.append(f"- and {len(lines) - len(fitting)} more")
    if modules:
        told.append(f"The traceback ends in {modules.most_common(1)[0][0]}.")
    return "\n".join([*told, "Fix the source, not the tests."])
