"""What an agent is told: the symptom, as the failing run shows it, and never the change.

Instructions are short, because small models read them: the package, a few failing tests with what each of them says,
and the module that the tracebacks go through, where they show one.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from patchgym.tasks.hiding import function_of

_SHOWN_TESTS = 2
_MESSAGE_CHARS = 110
_LEAST_CHARS = 8
_FRAME = re.compile(r"^(\S+\.py):\d+: ", re.MULTILINE)
_PROSE = re.compile(r"'[^']*'|\"[^\"]*\"|#.*")
_WORDS = re.compile(r"[^\W\d]\w*")


def failure_message(traceback: str) -> str:
    """The line of a short pytest traceback that says what went wrong (the first of its last ``E`` block), cut."""
    blocks = re.findall(r"(?:^E .*\n?)+", traceback, re.MULTILINE)
    lines = [line[1:].strip() for line in blocks[-1].splitlines()] if blocks else traceback.strip().splitlines()[-1:]
    message = next((line for line in lines if line), "")
    return message if len(message) <= _MESSAGE_CHARS else message[: _MESSAGE_CHARS - 3].rstrip() + "..."


def modules_of(tracebacks: Sequence[str], is_source: Callable[[str], bool]) -> list[str]:
    """Source files that the tracebacks go through, the most frequent first."""
    counts: dict[str, int] = {}
    for text in tracebacks:
        for path in set(_FRAME.findall(text)):
            if is_source(path):
                counts[path] = counts.get(path, 0) + 1
    return sorted(counts, key=lambda path: (-counts[path], path))


def write_instruction(name: str, failures: Mapping[str, str], is_source: Callable[[str], bool]) -> str:
    """The instruction of a task on package ``name``; ``failures`` maps visible failing tests to their tracebacks."""
    shown: dict[str, str] = {}
    for test, traceback in failures.items():
        path, function = function_of(test)
        shown.setdefault(f"{path}::{function.replace('.', '::')}", failure_message(traceback))
    lines = [f"{name} has a bug. {'These tests fail' if len(shown) > 1 else 'This test fails'}:"]
    lines += [f"- {test}: {message}" for test, message in list(shown.items())[:_SHOWN_TESTS]]
    if len(shown) > _SHOWN_TESTS:
        lines.append(f"- and {len(shown) - _SHOWN_TESTS} more")
    modules = modules_of(list(failures.values()), is_source)
    if modules:
        lines.append(f"The traceback goes through {modules[0]}.")
    lines.append("Fix the source, not the tests.")
    return "\n".join(lines)


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
