"""Statements of tasks, put together from sentences (``wordings.toml``): what goes wrong, never what to change.

All input is plain text and goes in as data: names and values stand between backticks, and nothing in them is filled in
again.
"""

import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from patchgym.config import Settings
from patchgym.errors import DataError
from patchgym.tasks.bugs.survey import FunctionFacts, functions_of
from patchgym.tasks.bugs.symptoms import Symptom
from patchgym.tasks.sources.candidates import changed_functions

_MOST_SYMPTOMS = 3
_MOST_FUNCTIONS = 3
_DOCSTRING_CHARS = 400


class _Called(Settings):
    called: tuple[str, ...]
    named: tuple[str, ...]
    unnamed: tuple[str, ...]


class _Named(Settings):
    named: tuple[str, ...]
    unnamed: tuple[str, ...]


class _Any(Settings):
    any: tuple[str, ...]


class _Behaviour(Settings):
    documented: tuple[str, ...]
    undocumented: tuple[str, ...]
    missing: tuple[str, ...]
    several: tuple[str, ...]


class _Wordings(Settings):
    opening: _Named
    value: _Called
    raised: _Called
    silent: _Called
    check: _Called
    closing: _Any
    behaviour: _Behaviour
    removal: _Any


@dataclass(frozen=True)
class Touched:
    """A function that a change touches, with its docstring from before it; ``missing`` says that there was none
    before."""

    path: str
    name: str
    public: bool
    docstring: str
    missing: bool = False


def symptom_statement(package: str, symptoms: Sequence[Symptom], seed: str) -> str:
    """A statement of what goes wrong in ``package``, from up to three symptoms, the most telling first. The same
    arguments give the same text.

    Raises:
        DataError: there is no symptom to tell.
    """
    told = _telling(symptoms)
    if not told:
        raise DataError("There is no symptom to tell", why="No failing test explains itself.")
    draw = random.Random(f"symptom/{seed}")
    words = _wordings()
    name = next((each.name for each in told if each.name), "")
    opening = draw.choice(words.opening.named if name else words.opening.unnamed)
    told_lines = [_filled(opening, package=package, name=_code(name))]
    told_lines += [_sentence(each, package, draw) for each in told]
    return "\n".join([" ".join(told_lines), draw.choice(words.closing.any)])


def from_diff(
    package: str, before: Mapping[str, str], after: Mapping[str, str], symptoms: Sequence[Symptom], seed: str
) -> str:
    """A statement for a change of ``package`` from its source files ``before`` to those ``after`` (texts by path): the
    public functions that it touches, with the docstrings from before it, and what failing tests show. It holds no text
    of the change; of a function that only the change brings in it tells the name and the docstring.

    Raises:
        DataError: the change touches no public function, and there is no symptom to tell.
    """
    touched = [each for each in touched_functions(before, after) if each.public][:_MOST_FUNCTIONS]
    told = _telling(symptoms)
    if not touched and not told:
        raise DataError("There is nothing to tell of this change", why="No public function and no symptom shows it.")
    draw = random.Random(f"diff/{seed}")
    words = _wordings()
    parts: list[str] = []
    if told:
        opening = draw.choice(words.opening.unnamed)
        parts.append(" ".join([_filled(opening, package=package), *(_sentence(each, package, draw) for each in told)]))
    if len(touched) > 1:
        names = ", ".join(_code(each.name) for each in touched)
        parts.append(_filled(draw.choice(words.behaviour.several), name=names))
    parts += [_behaviour(each, package, draw) for each in touched]
    return "\n\n".join([*parts, draw.choice(words.closing.any)])


def removal_statement(package: str, function: FunctionFacts, seed: str) -> str:
    """The statement of a function whose body was taken out: its name and its docstring."""
    draw = random.Random(f"removal/{seed}")
    line = _filled(draw.choice(_wordings().removal.any), package=package, name=_code(function.name))
    return f"{line}\n\n{_quoted(function.docstring)}" if function.docstring else line


def touched_functions(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Touched, ...]:
    """The functions that differ as programs between two states of source files (texts by path), in order of path and
    place; those that are gone afterwards are left out."""
    found: list[Touched] = []
    for path in sorted(after):
        old, new = before.get(path, ""), after[path]
        if old == new:
            continue
        names = changed_functions(old, new)
        known = {facts.name: facts for facts in functions_of(path, old)}
        for facts in functions_of(path, new):
            if facts.name in names:
                was = known.get(facts.name)
                text = was.docstring if was is not None else facts.docstring
                found.append(Touched(path, facts.name, facts.public, text, missing=was is None))
    return tuple(found)


def _telling(symptoms: Sequence[Symptom]) -> list[Symptom]:
    """Up to three different symptoms, those first that say most; none that say nothing."""
    distinct = [each for each in dict.fromkeys(symptoms) if each.got or each.error]
    distinct.sort(key=lambda each: (not each.call, each.kind == "check", not each.name))
    return distinct[:_MOST_SYMPTOMS]


def _sentence(symptom: Symptom, package: str, draw: random.Random) -> str:
    kinds = {"value": _wordings().value, "raised": _wordings().raised, "silent": _wordings().silent}
    kind = kinds.get(symptom.kind, _wordings().check)
    choices = kind.called if symptom.call else kind.named if symptom.name else kind.unnamed
    return _filled(
        draw.choice(choices),
        package=package,
        name=_code(symptom.name),
        call=_code(symptom.call),
        expected=_code(symptom.expected),
        got=_code(symptom.got),
        error=_code(symptom.error),
    )


def _behaviour(touched: Touched, package: str, draw: random.Random) -> str:
    words = _wordings().behaviour
    name = _code(touched.name)
    if touched.missing:
        line = _filled(draw.choice(words.missing), package=package, name=name)
    else:
        line = _filled(draw.choice(words.documented if touched.docstring else words.undocumented), name=name)
    return f"{line}\n\n{_quoted(touched.docstring)}" if touched.docstring else line


def _filled(sentence: str, **values: str) -> str:
    """A sentence of ours with its values. A value is put in as it is: braces in it mean nothing."""
    return sentence.format_map(values)


def _code(text: str) -> str:
    """``text`` as Markdown code on one line, whatever backticks it holds."""
    line = " ".join(text.split())
    if "`" not in line:
        return f"`{line}`"
    longest = max(len(run) for run in "".join(mark if mark == "`" else " " for mark in line).split())
    return f"{'`' * (longest + 1)} {line} {'`' * (longest + 1)}"


def _quoted(docstring: str) -> str:
    """The first paragraphs of a docstring as a Markdown quotation."""
    text = docstring.strip()
    if len(text) > _DOCSTRING_CHARS:
        kept = text[:_DOCSTRING_CHARS].rpartition("\n\n")[0] or text[:_DOCSTRING_CHARS].rpartition("\n")[0]
        text = kept.rstrip() or text[: _DOCSTRING_CHARS - 3].rstrip() + "..."
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


@lru_cache(maxsize=1)
def _wordings() -> _Wordings:
    text = resources.files("patchgym.tasks.bugs").joinpath("wordings.toml").read_text(encoding="utf-8")
    return _Wordings.model_validate(tomllib.loads(text))
