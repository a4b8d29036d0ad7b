"""What a task, or a record of somebody else's benchmark, shows that can be compared with others."""

from datetime import datetime
from urllib.parse import urlsplit

from patchgym.content import ObjectStore
from patchgym.content.objects import SYMLINK, Entry
from patchgym.errors import DataError
from patchgym.records import Task, VersionedRecord
from patchgym.tasks.overlap.changes import HunkText, hunks_of
from patchgym.tasks.overlap.functions import Function, docstrings, hunk_functions, touched_functions


class Material(VersionedRecord):
    """One task or benchmark record, ready to compare.

    ``origin`` names the file or set that it is from; ``repo`` is ``owner/name`` or a package's name, in lower case;
    ``base_commit`` and ``fix_commit`` are hashes before and after a change that people made (of a planted bug there is
    neither: many share its base);
    ``patches`` are unified diffs, the solution first; ``functions`` those that the solution touches; ``statements``
    what the solver is told, and the docstrings of the functions.
    """

    id: str
    origin: str = ""
    repo: str = ""
    base_commit: str | None = None
    fix_commit: str | None = None
    created_at: datetime | None = None
    patches: tuple[str, ...] = ()
    functions: tuple[Function, ...] = ()
    statements: tuple[str, ...] = ()


def task_material(task: Task, objects: ObjectStore, *, origin: str = "") -> Material:
    """A task as material: its functions before and after come from its workspace and its gold patch. Reads only.

    Where the workspace lacks a patched file (a benchmark's row without its repository), the patch's hunks stand in.

    Raises:
        DataError: ``objects`` lacks the workspace.
    """
    hunks: dict[str, list[HunkText]] = {}
    for hunk in hunks_of(task.gold_patch):
        hunks.setdefault(hunk.path, []).append(hunk)
    entries = objects.entries(task.workspace)
    functions: list[Function] = []
    for path, part in hunks.items():
        before = _text(objects, entries.get(path))
        after = _patched(before, part)
        functions += hunk_functions(part) if after is None else touched_functions(path, before, after, part)
    source = task.source
    natural = source.kind in ("git", "release_pair", "benchmark")
    return Material(
        id=task.id,
        origin=origin,
        repo=repository(source.repo),
        base_commit=source.base_commit if natural else None,
        fix_commit=source.fix_commit if natural else None,
        created_at=source.created_at,
        patches=(task.gold_patch,) if task.gold_patch.strip() else (),
        functions=tuple(functions),
        statements=(task.instruction, *function_docstrings(functions)),
    )


def function_docstrings(functions: list[Function]) -> list[str]:
    """The docstrings of functions, each once."""
    texts = (text for function in functions for text in docstrings(function.after or function.before))
    return list(dict.fromkeys(texts))


def repository(name: str) -> str:
    """A repository's name in one form: ``owner/name`` in lower case, without address, ``.git``, or the commit and the
    doubled underscore of mirrors named ``owner__name.commit``."""
    path = urlsplit(name).path if "://" in name else name.partition(":")[2] if name.startswith("git@") else name
    plain = path.strip("/ ").lower().removesuffix(".git")
    if plain.startswith("swesmith/"):
        plain = plain.removeprefix("swesmith/").rpartition(".")[0] or plain.removeprefix("swesmith/")
    return plain.replace("__", "/", 1) if "/" not in plain else plain


def _text(objects: ObjectStore, entry: Entry | None) -> str:
    if entry is None or entry.mode == SYMLINK or entry.id not in objects:
        return ""
    try:
        return objects.get(entry.id).decode()
    except (UnicodeDecodeError, DataError):  # not text, or not a file (a submodule)
        return ""


def _patched(before: str, hunks: list[HunkText]) -> str | None:
    """The file with its hunks applied, from the last to the first; None where one does not fit."""
    lines = before.replace("\r\n", "\n").split("\n") if before else []
    for hunk in sorted(hunks, key=lambda hunk: hunk.start, reverse=True):
        end = hunk.start + len(hunk.old)
        if tuple(lines[hunk.start : end]) != hunk.old:
            return None
        lines[hunk.start : end] = hunk.new
    return "\n".join(lines)
