"""Fingerprints: what of a task or record decides whether it is another's duplicate, or a version of one function."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from patchgym.content import ObjectStore
from patchgym.records import Task
from patchgym.tasks.overlap.changes import hunks_of, marked_tokens
from patchgym.tasks.overlap.functions import Function, without_docstrings
from patchgym.tasks.overlap.material import Material, task_material
from patchgym.tasks.overlap.minhash import shingles
from patchgym.tasks.overlap.tokens import code_tokens, renamed, runs, words

CODE_RUN, CHANGE_RUN, WORD_RUN = 3, 4, 3
SPECIFIC_CODE = 24  # tokens of a function from which it is told from others by its text
SPECIFIC_PATCH = 24  # tokens of a patch with its context from which the same text means the same patch
SPECIFIC_CHANGE = 30  # removed and added tokens from which a change means the same wherever it is made
SPECIFIC_WORDS = 12
_BOUNDARY = "\n"


@dataclass(frozen=True)
class Body:
    """One version of a function: ``key`` hashes its tokens without docstrings and comments, ``renamed_key`` the same
    with its names replaced; ``tokens`` are the runs of tokens, as a packed set."""

    key: str
    renamed_key: str
    tokens: bytes
    length: int


@dataclass(frozen=True)
class Fingerprint:
    """What is compared of one task or record. Packed sets are those of ``minhash.shingles``.

    ``named`` are its functions as ``repository:path:qualified name``, ``bodies`` their versions before and after.
    ``patch_key`` hashes the solution's tokens with their context ("" where that is too short to tell); ``change`` is
    the set of runs around what it removes and adds, of which there are ``changed`` tokens. ``statement`` is the set of
    runs of words of what the solver is told.
    """

    id: str
    repo: str
    base_commit: str | None
    fix_commit: str | None
    created_at: datetime | None
    named: frozenset[str]
    bodies: tuple[Body, ...]
    patch_key: str
    change: bytes
    changed: int
    statement: bytes


def fingerprint(material: Material) -> Fingerprint:
    """The fingerprint of one record. The same material has the same one, on every machine."""
    patch = solution_tokens(material.patches[0]) if material.patches else []
    named = (
        f"{material.repo}:{function.path}:{function.name}"
        for function in material.functions
        if not function.name.startswith("<")
    )
    texts = (text for function in material.functions for text in sides(function))
    told = words(material.statements[0]) if material.statements else []
    return Fingerprint(
        id=material.id,
        repo=material.repo,
        base_commit=material.base_commit,
        fix_commit=material.fix_commit,
        created_at=material.created_at,
        named=frozenset(named),
        bodies=tuple(dict.fromkeys(_body(code_tokens(text, path)) for path, text in texts)),
        patch_key=digest(patch) if len(patch) >= SPECIFIC_PATCH else "",
        change=shingles(change_runs(patch)),
        changed=sum(token[0] in "+-" for token in patch),
        statement=shingles(joined(runs(told, WORD_RUN))),
    )


def fingerprint_tasks(tasks: Iterable[Task], objects: ObjectStore) -> list[Fingerprint]:
    """The fingerprints of tasks, in order.

    Raises:
        DataError: ``objects`` lacks a task's workspace.
    """
    return [fingerprint(task_material(task, objects)) for task in tasks]


def solution_tokens(patch: str) -> list[str]:
    """A patch as marked tokens (``changes.marked_tokens``), with a line end between hunks; paths and line numbers are
    left out, and hunks in which only comments or whitespace change."""
    found: list[str] = []
    for hunk in hunks_of(patch):
        marked = marked_tokens(hunk)
        if any(token[0] != " " for token in marked):
            found += [*marked, _BOUNDARY]
    return found


def change_runs(patch: Sequence[str]) -> Iterable[str]:
    """Those runs of ``solution_tokens`` in which something is removed or added: what a change says, with a little of
    what is around it. Two changes in one line share few of them."""
    for run in runs(patch, CHANGE_RUN):
        if any(token[0] in "+-" for token in run):
            yield "\x1f".join(run)


def sides(function: Function) -> list[tuple[str, str]]:
    """The path and the text, without docstrings, of a function before and after, where it exists."""
    plain = (without_docstrings(text) for text in (function.before, function.after) if text.strip())
    return [(function.path, text) for text in plain]


def joined(parts: Iterable[Sequence[str]]) -> Iterable[str]:
    """Each run as one text."""
    return ("\x1f".join(part) for part in parts)


def digest(tokens: Iterable[str]) -> str:
    """A hash of tokens: 24 hex digits of BLAKE2b."""
    text = "\x1f".join(tokens).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=12).hexdigest()


def _body(tokens: list[str]) -> Body:
    return Body(digest(tokens), digest(renamed(tokens)), shingles(joined(runs(tokens, CODE_RUN))), len(tokens))
