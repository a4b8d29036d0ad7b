"""Candidates: a release with something wrong in it, and the patch that mends it. Nothing is proved yet."""

import ast
import hashlib
from dataclasses import dataclass

from patchgym.content import Entry, ObjectStore, diff_trees
from patchgym.records import Difficulty, Source
from patchgym.tasks.sources.changelog import changelog_entry
from patchgym.tasks.sources.files import Files
from patchgym.tasks.sources.packages import with_tests_of
from patchgym.tasks.sources.project import Project, Revision
from patchgym.tasks.sources.refusals import Refusal, Refused


@dataclass(frozen=True)
class Candidate:
    """A task in the making. ``broken`` and ``healthy`` are trees with the same, whole test suite; ``gold_patch`` turns
    the first into the second; ``functions`` are ``path:qualified name`` of what it changes. ``statement`` is what
    people wrote of the problem (an issue, a changelog entry, a commit message), as it was found, or empty;
    ``exercised`` the public name that leads to a planted bug.
    """

    id: str
    revision: Revision
    source: Source
    broken: str
    healthy: str
    gold_patch: str
    functions: frozenset[str]
    statement: str = ""
    exercised: str = ""
    difficulty: Difficulty | None = None


@dataclass(frozen=True)
class Change:
    """``broken``: the old tree with the new tests. ``healthy``: with the new sources too, at ``paths``. ``patch`` turns
    the first into the second and touches ``functions`` (``path:qualified name``). ``tested`` says whether the tests
    differ."""

    broken: str
    healthy: str
    paths: tuple[str, ...]
    patch: str
    functions: frozenset[str]
    tested: bool


def change_between(
    objects: ObjectStore, old: str, new: str, project: Project, *, most_files: int | None = None
) -> Change:
    """The change from the tree ``old`` to the tree ``new``, whose layout is ``project``. Only what lies among its
    sources counts; documents and metadata stay as they were.

    Raises:
        Refused: it changes more than ``most_files`` files of source (``too_big``); told before any is compared.
    """
    broken = with_tests_of(objects, old, new, project)
    before, after = objects.entries(broken), objects.entries(new)
    changed = [path for path in objects.changed_paths(broken, new) if project.holds(path)]
    if most_files is not None and len(changed) > most_files:
        raise Refused(Refusal.TOO_BIG, f"{len(changed)} files")
    healthy = objects.update_tree(broken, {path: after.get(path) for path in changed})
    functions: set[str] = set()
    for path in changed:
        if project.is_source(path):
            texts = [text_of(objects, side[path]) if path in side else "" for side in (before, after)]
            functions |= {f"{path}:{name}" for name in changed_functions(*texts)}
    patch = diff_trees(objects, broken, healthy)
    return Change(broken, healthy, tuple(changed), patch, frozenset(functions), tested=broken != old)


def pair_candidate(old: Revision, new: Revision, objects: ObjectStore, change: Change | None = None) -> Candidate:
    """The fix that a release made: the old sources under the new tests. Only what lies among the sources counts as the
    fix; what else changed between the two releases (documents, metadata) stays as it was. The statement is what the new
    release's changelog says of it. ``change`` is what lies between the two, where it is known already."""
    change = change or change_between(objects, old.tree, new.tree, new.project)
    statement = changelog_entry(Files(objects, objects.entries(new.tree)), new.version)
    source = Source(
        kind="release_pair",
        repo=old.name,
        version=old.version,
        base_commit=old.tree,
        fix_commit=new.tree,
        license=old.project.license or None,
        created_at=new.created_at,
        statement="changelog" if statement else None,
        change=f"the sources of {new.version}",
    )
    return natural_candidate(old, source, change, statement)


def natural_candidate(revision: Revision, source: Source, change: Change, statement: str) -> Candidate:
    """The candidate that a change makes; its id says the revision and the patch."""
    key = f"{revision.label}-fix-{_short(change.patch)}"
    return Candidate(
        key, revision, source, change.broken, change.healthy, change.patch, change.functions, statement=statement
    )


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
    return hashlib.sha256(patch.encode()).hexdigest()[:8]
