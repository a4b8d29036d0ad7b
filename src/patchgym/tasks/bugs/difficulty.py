"""How hard a task looks before anybody tried it, with the reasons.

The estimate is a weighted mean of what is known; what is not known counts neither way. Each part lies between 0 and 1.
A count ``n`` becomes ``n / (n + half)``, so that ``half`` is where it counts as middling.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from patchgym.content import patch_scope
from patchgym.records import Difficulty
from patchgym.tasks.bugs.survey import FunctionFacts, functions_of
from patchgym.tasks.sources.candidates import changed_functions

_PLAIN, _HARD = 0.35, 0.65


@dataclass(frozen=True)
class Facts:
    """What an estimate rests on.

    ``subtlety`` is how hard the kind of bug is to see (0 to 1); ``complexity`` and ``lines`` are those of the functions
    touched, the largest and the sum; ``depth`` the calls between the nearest test and them; ``changed`` the lines that
    the gold patch adds and removes. ``failing`` counts the failing tests, and ``traced`` says whether a traceback of
    theirs leads through the bug, once they have run. None is unknown.
    """

    complexity: int
    lines: int
    functions: int = 1
    files: int = 1
    subtlety: float | None = None
    depth: int | None = None
    changed: int | None = None
    failing: int | None = None
    traced: bool | None = None


def estimate(facts: Facts) -> Difficulty:
    """The estimate and what it rests on, the weightiest reasons first."""
    parts: list[tuple[float, float, str]] = [
        (2.0, _part(facts.complexity - 1, 6), f"{_count(facts.complexity - 1, 'branch', 'branches')} in the code"),
        (1.0, _part(facts.lines, 40), f"{_count(facts.lines, 'line')} of code to search"),
        (
            2.0,
            _part(facts.functions + facts.files - 2, 2),
            f"{_count(facts.functions, 'function')} in {_count(facts.files, 'file')}",
        ),
    ]
    if facts.subtlety is not None:
        parts.append((3.0, facts.subtlety, f"a kind of bug that is {_how_plain(facts.subtlety)}"))
    if facts.depth is not None:
        parts.append((2.0, _part(facts.depth - 1, 2), f"{_count(max(facts.depth, 1), 'call')} below the tests"))
    if facts.changed is not None:
        parts.append((2.0, _part(max(0, facts.changed - 2), 20), f"{_count(facts.changed, 'line')} in the patch"))
    if facts.failing is not None:  # a single failing test says where to look, many say little
        parts.append((1.0, _part(facts.failing - 1, 10), f"{_count(facts.failing, 'failing test')}"))
    if facts.traced is not None:
        told = "leads there" if facts.traced else "does not lead there"
        parts.append((2.0, 0.1 if facts.traced else 0.8, f"the traceback {told}"))
    total = sum(weight for weight, _, _ in parts)
    score = sum(weight * value for weight, value, _ in parts) / total
    parts.sort(key=lambda part: -part[0])
    return Difficulty(score=round(score, 3), why=tuple(f"{why} ({value:.2f})" for _, value, why in parts))


def facts_of_patch(patch: str, before: Mapping[str, str], after: Mapping[str, str]) -> Facts:
    """The facts of a gold patch that turns the source files ``before`` into ``after`` (texts by path, at least those
    that it touches). Functions are measured as they are before it, those that only it brings in as they are after it.

    Raises:
        PatchError: ``patch`` does not parse.
    """
    scope = patch_scope(patch)
    touched: list[FunctionFacts] = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path, ""), after.get(path, "")
        if old != new:
            names = changed_functions(old, new)
            known = {facts.name: facts for text in (new, old) for facts in functions_of(path, text)}
            touched += [known[name] for name in sorted(names) if name in known]
    return Facts(
        complexity=max((facts.complexity for facts in touched), default=1),
        lines=sum(len(facts.lines) for facts in touched),
        functions=max(1, len(touched)),
        files=max(1, scope.files),
        changed=scope.lines,
    )


def _part(count: int, half: int) -> float:
    """Between 0 and 1, 0.5 at ``half``."""
    return max(count, 0) / (max(count, 0) + half)


def _how_plain(subtlety: float) -> str:
    return "plain to see" if subtlety < _PLAIN else "hard to see" if subtlety > _HARD else "not plain to see"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
