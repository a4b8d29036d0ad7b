"""Records of benchmarks in files of many kinds, by the fields that they have.

A row is a JSON object. What it shows is found by the names that such fields commonly have, so that SWE-bench and its
relatives, HumanEval, MBPP and a plain list of texts or snippets are all read without being told apart.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from pydantic import JsonValue, TypeAdapter, ValidationError

from patchgym.tasks.overlap.changes import HunkText, hunks_of, reversed_patch
from patchgym.tasks.overlap.functions import Function, functions_in, hunk_functions
from patchgym.tasks.overlap.material import Material, function_docstrings, repository

_IDS = ("instance_id", "task_id", "problem_id", "question_id", "id", "name")
_REPOS = ("repo", "repo_name", "repository")
_BASES = ("base_commit", "parent_commit")
_FIXES = ("fix_commit", "commit_hash", "merge_commit", "commit")
_TIMES = ("created_at", "date", "timestamp")
_PATCHES = ("patch", "gold_patch", "diff", "test_patch")
_STATEMENTS = (
    *("problem_statement", "instruction", "prompt", "question", "description", "issue", "text", "problem", "content"),
    "docstring",
)
_CODES = (
    "canonical_solution",
    "solution",
    "solutions",
    "code",
    "reference",
    "reference_solution",
    "func",
    "completion",
)
_TIME = TypeAdapter(datetime)


def row_material(row: Mapping[str, JsonValue], *, origin: str, number: int) -> Material | None:
    """A row as material; None where it has none of the fields that can be compared. ``number`` stands in for an id.

    The patch of a SWE-smith row is the bug, and is turned round.
    """
    fields = {key.lower(): value for key, value in row.items()}
    raw_repo = _first(fields, _REPOS)
    patches = [text for name in _PATCHES for text in _texts(fields.get(name)) if text.strip()]
    if raw_repo.lower().startswith("swesmith/") and _texts(fields.get("patch")):
        patches[0] = reversed_patch(patches[0])
    statements = [text for name in _STATEMENTS for text in _texts(fields.get(name)) if text.strip()]
    functions = [*_code_functions(fields, statements), *(_patch_functions(patches[0]) if patches else [])]
    base, fix = _first(fields, _BASES), _first(fields, _FIXES)
    if not (patches or statements or functions or (raw_repo and (base or fix))):
        return None
    return Material(
        id=_first(fields, _IDS) or f"row {number}",
        origin=origin,
        repo=repository(raw_repo),
        base_commit=base.lower() or None,
        fix_commit=fix.lower() or None,
        created_at=_time(_first(fields, _TIMES)),
        patches=tuple(patches),
        functions=tuple(functions),
        statements=tuple(dict.fromkeys([*statements, *function_docstrings(functions)])),
    )


def _code_functions(fields: Mapping[str, JsonValue], statements: Sequence[str]) -> list[Function]:
    """The functions of every code field. A solution may be only the body behind a prompt that is code, as in
    HumanEval; code in which no function is found stands as one."""
    found: list[Function] = []
    for name in _CODES:
        for text in _texts(fields.get(name)):
            for whole in (*(statement + text for statement in statements), text):
                functions = functions_in(whole)
                if functions:
                    found += [Function(path="", name=key, after=body) for key, body in functions.items()]
                    break
            else:
                if text.strip():
                    found.append(Function(path="", name="<code>", after=text))
    return found


def _patch_functions(patch: str) -> list[Function]:
    parts: dict[str, list[HunkText]] = {}
    for hunk in hunks_of(patch):
        parts.setdefault(hunk.path, []).append(hunk)
    return [function for part in parts.values() for function in hunk_functions(part)]


def _first(fields: Mapping[str, JsonValue], names: Sequence[str]) -> str:
    for name in names:
        value = fields.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return str(value).strip()
    return ""


def _texts(value: JsonValue | None) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _time(text: str) -> datetime | None:
    try:
        return _TIME.validate_python(text) if text else None
    except ValidationError:
        return None
