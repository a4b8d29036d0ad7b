"""What an agent is told: the symptom, as the failing run shows it, and never the change.

Instructions are short, because small models read them: the package, a few failing tests with what each of them says,
and the module that the tracebacks go through, where they show one.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from patchgym.tasks.proof.hiding import function_of

_TEST_CHARS = 320
_MESSAGE_CHARS = 110
_LEAST_CHARS = 8
_FRAME = re.compile(r"^(\S+\.py):\d+: in (\S+)$", re.MULTILINE)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_PROSE = re.compile(r"'[^']*'|\"[^\"]*\"|#.*")
_WORDS = re.compile(r"[^\W\d]\w*")


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


def leaks(instruction: str, gold_patch: str, workspace: Iterable[str]) -> list[str]:
    """What an instruction gives away of the fix: lines that the patch adds or removes, and names that only the fix
    brings in (that none of ``workspace``, the texts of the files that the agent starts from, has)."""
    told = " ".join(instruction.split())
    found: list[str] = []
    known = {word for text in workspace for word in _WORDS.findall(text)}
    told_words = set(_WORDS.findall(instruction))
    for line in gold_patch.splitlines():
        if line[:1] not in ("+", "-") or line.startswith(("+++", "---")):
            continue
        code = " ".join(line[1:].split())
        if len(code) >= _LEAST_CHARS and code in told:
            found.append(code)
        if line[0] == "+":
            found += sorted((set(_WORDS.findall(_PROSE.sub("", code))) - known) & told_words)
    return list(dict.fromkeys(found))
