"""From mutations to bugs: one, several at once, or a function without its body."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from patchgym.tasks.bugs.bug import Bug
from patchgym.tasks.bugs.chances import subtlety
from patchgym.tasks.bugs.difficulty import Facts
from patchgym.tasks.bugs.mutation import Mutation, plant
from patchgym.tasks.bugs.survey import FunctionFacts, Survey
from patchgym.tasks.bugs.templates import removal_statement


@dataclass(frozen=True)
class Source:
    """A source file of the healthy revision."""

    path: str
    text: str

    @cached_property
    def data(self) -> bytes:
        """The text in UTF-8."""
        return self.text.encode()


Part = tuple[Source, Mutation, FunctionFacts]
"""A mutation with the file and the function that it is in."""


def single(source: Source, found: Mutation, facts: FunctionFacts, survey: Survey) -> Bug:
    """One small bug."""
    return Bug(
        kind="mutation",
        changes={source.path: plant(source.text, found)},
        operators=(found.operator,),
        functions=(facts.key,),
        lines={source.path: tuple(found.lines)},
        change=_told(source.path, found),
        facts=_facts([(source, found, facts)], survey),
        exercised=survey.shown(facts.key),
    )


def combined(parts: Sequence[Part], survey: Survey) -> Bug:
    """Several small bugs in different functions; the workspace is mended only when all are."""
    by_path: dict[str, list[Mutation]] = {}
    for source, found, _ in parts:
        by_path.setdefault(source.path, []).append(found)
    texts = {source.path: source.text for source, _, _ in parts}
    return Bug(
        kind="combined",
        changes={path: plant(texts[path], *found) for path, found in by_path.items()},
        operators=tuple(found.operator for _, found, _ in parts),
        functions=tuple(facts.key for _, _, facts in parts),
        lines={path: tuple(sorted({line for each in found for line in each.lines})) for path, found in by_path.items()},
        change="; ".join(_told(source.path, found) for source, found, _ in parts),
        facts=_facts(parts, survey),
        exercised=next(filter(None, (survey.shown(facts.key) for _, _, facts in parts)), ""),
    )


def removed(source: Source, found: Mutation, facts: FunctionFacts, survey: Survey, package: str, seed: str) -> Bug:
    """A function without its body; its docstring is the statement."""
    return Bug(
        kind="removal",
        changes={source.path: plant(source.text, found)},
        operators=(found.operator,),
        functions=(facts.key,),
        lines={source.path: tuple(found.lines)},
        change=f"{found.operator} at {source.path}:{found.line}: {found.function} lost its body",
        facts=_facts([(source, found, facts)], survey),
        exercised=survey.shown(facts.key),
        statement=removal_statement(package, facts, f"{seed}/{facts.key}"),
    )


def _told(path: str, found: Mutation) -> str:
    snippets = f"{found.old_snippet.strip()!r} became {found.new_snippet.strip()!r}"
    return f"{found.operator} at {path}:{found.line} in {found.function}: {snippets}"


def _facts(parts: Sequence[Part], survey: Survey) -> Facts:
    depths = [survey.depth(facts.key) for _, _, facts in parts]
    known = [depth for depth in depths if depth is not None]
    hidden = [value for value in (subtlety(found.operator) for _, found, _ in parts) if value is not None]
    return Facts(
        complexity=max(facts.complexity for _, _, facts in parts),
        lines=sum(len(facts.lines) for _, _, facts in parts),
        functions=len({facts.key for _, _, facts in parts}),
        files=len({source.path for source, _, _ in parts}),
        subtlety=max(hidden, default=None),
        depth=max(known, default=None),
        changed=sum(_changed_lines(found) for _, found, _ in parts),
    )


def _changed_lines(found: Mutation) -> int:
    """About as many lines as the gold patch adds and removes."""
    return max(1, found.old_snippet.strip("\n").count("\n") + 1) + (found.new_snippet.count("\n") + 1)
