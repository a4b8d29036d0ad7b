"""Candidates: a release with something wrong in it, and the patch that mends it. Nothing is proved yet."""

import ast
import hashlib
import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from patchgym.content import Entry, ObjectStore, diff_trees
from patchgym.errors import DataError
from patchgym.records import Difficulty, Source
from patchgym.tasks.bugs.mutation import Mutation, mutations
from patchgym.tasks.sources.packages import with_tests_of
from patchgym.tasks.sources.project import Revision


@dataclass(frozen=True)
class Candidate:
    """A task in the making. ``broken`` and ``healthy`` are trees with the same, whole test suite; ``gold_patch`` turns
    the first into the second; ``functions`` are ``path:qualified name`` of what it changes. ``statement`` is what
    people wrote of the problem (an issue, a changelog entry, a commit message), as it was found, or empty.
    """

    id: str
    revision: Revision
    source: Source
    broken: str
    healthy: str
    gold_patch: str
    functions: frozenset[str]
    statement: str = ""
    difficulty: Difficulty | None = None


def plan_mutations(
    revision: Revision, objects: ObjectStore, *, operators: Collection[str], max_function_lines: int, seed: int
) -> list[tuple[str, Mutation]]:
    """The bugs that can be planted in a release, each with its function (``path:qualified name``), in an order that
    ``seed`` decides: one function after another, and in each the operator that was used least so far, so that the first
    few differ as much as they can. Writes nothing."""
    draw = random.Random(f"{seed}/{revision.label}")
    by_function: dict[str, list[Mutation]] = {}
    for path, entry in sorted(objects.entries(revision.tree).items()):
        if revision.project.is_source(path):
            try:
                planned_here = mutations(text_of(objects, entry), operators, max_function_lines=max_function_lines)
            except DataError:  # a template, or code for another Python
                continue
            for found in planned_here:
                by_function.setdefault(f"{path}:{found.function}", []).append(found)
    names = sorted(by_function)
    draw.shuffle(names)
    for name in names:
        draw.shuffle(by_function[name])
    used: Counter[str] = Counter()
    planned: list[tuple[str, Mutation]] = []
    while any(by_function.values()):
        for name in names:
            if by_function[name]:
                chosen = min(by_function[name], key=lambda found: used[found.operator])
                by_function[name].remove(chosen)
                used[chosen.operator] += 1
                planned.append((name, chosen))
    return planned


def planted_candidate(revision: Revision, objects: ObjectStore, function: str, found: Mutation) -> Candidate:
    """The release with one bug planted in ``function`` (``path:qualified name``)."""
    path = function.partition(":")[0]
    mode = objects.entries(revision.tree)[path].mode
    broken = objects.update_tree(revision.tree, {path: Entry(mode, objects.put(found.new_source.encode()))})
    patch = diff_trees(objects, broken, revision.tree)
    snippets = f"{found.old_snippet.strip()!r} became {found.new_snippet.strip()!r}"
    source = Source(
        kind="synthetic",
        repo=revision.name,
        version=revision.version,
        base_commit=revision.tree,
        license=revision.project.license,
        change=f"{found.operator} at {path}:{found.line} in {found.function}: {snippets}",
    )
    key = f"{revision.label}-syn-{_short(patch)}"
    return Candidate(key, revision, source, broken, revision.tree, patch, frozenset({function}))


def pair_candidate(old: Revision, new: Revision, objects: ObjectStore) -> Candidate:
    """The fix that a release made: the old sources under the new tests. Only sources count as the fix; what else
    changed between the two releases (documents, metadata) stays as it was."""
    broken = with_tests_of(objects, old.tree, new.tree, new.project)
    before, after = objects.entries(broken), objects.entries(new.tree)
    is_source = new.project.is_source
    changed = [path for path in objects.changed_paths(broken, new.tree) if is_source(path)]
    healthy = objects.update_tree(broken, {path: after.get(path) for path in changed})
    functions: set[str] = set()
    for path in changed:
        old_text, new_text = (text_of(objects, side[path]) if path in side else "" for side in (before, after))
        functions |= {f"{path}:{name}" for name in changed_functions(old_text, new_text)}
    patch = diff_trees(objects, broken, healthy)
    source = Source(
        kind="release_pair",
        repo=old.name,
        version=old.version,
        base_commit=old.tree,
        fix_commit=new.tree,
        license=old.project.license,
        change=f"the sources of {new.version}",
    )
    return Candidate(f"{old.label}-fix-{_short(patch)}", old, source, broken, healthy, patch, frozenset(functions))


def text_of(objects: ObjectStore, entry: Entry) -> str:
    """A file's text; empty where it is not UTF-8, so that nothing is planted in it and nothing taken out of it."""
    try:
        return objects.get(entry.id).decode()
    except UnicodeDecodeError:
        return ""


def changed_functions(before: str, after: str) -> frozenset[str]:
    """Qualified names of the functions that differ between two versions of a source file as programs."""
    old, new = _functions(before), _functions(after)
    return frozenset(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def _functions(source: str) -> dict[str, str]:
    found: dict[str, str] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                if not isinstance(child, ast.ClassDef):
                    found[name] = ast.dump(child)
                visit(child, f"{name}.")
            else:
                visit(child, prefix)

    try:
        visit(ast.parse(source), "")
    except (SyntaxError, ValueError):
        return {}
    return found


def _short(patch: str) -> str:
    return hashlib.sha256(patch.encode()).hexdigest()[:6]
