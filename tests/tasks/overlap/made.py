"""Records and task sets to compare: real functions, changed by hand."""

import difflib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from patchgym.content import ObjectStore, diff_trees, patch_scope
from patchgym.records import Source, Task, TaskSetManifest
from patchgym.tasks import TaskSet
from patchgym.tasks.overlap.changes import hunks_of
from patchgym.tasks.overlap.fingerprints import Fingerprint, fingerprint
from patchgym.tasks.overlap.functions import touched_functions
from patchgym.tasks.overlap.material import Material
from patchgym.tasks.taskset import write_task_set
from tests.records_for_tests import THEN, make_task
from tests.workshop import tree_of

MERGE = '''\
def merge_sorted(first, second, *, key=None):
    """Merge two sorted lists into one."""
    merged = []
    left, right = 0, 0
    while left < len(first) and right < len(second):
        # The first list wins a tie.
        if key(first[left]) <= key(second[right]):
            merged.append(first[left])
            left += 1
        else:
            merged.append(second[right])
            right += 1
    merged.extend(first[left:])
    merged.extend(second[right:])
    return merged
'''
CHUNKS = '''\
def chunks(values, size, fill=None):
    """Split values into lists of one size."""
    if size < 1:
        raise ValueError("size must be positive")
    found = [list(values[start : start + size]) for start in range(0, len(values), size)]
    if fill is not None and found:
        missing = size - len(found[-1])
        found[-1].extend([fill] * missing)
    return found
'''
COUNT = """\
def count_words(text, *, ignore=()):
    counts = {}
    for line in text.splitlines():
        for word in line.strip().lower().split():
            cleaned = word.strip(".,;:!?")
            if cleaned and cleaned not in ignore:
                counts[cleaned] = counts.get(cleaned, 0) + 1
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
"""
RENAMED = {
    "first": "a",
    "second": "b",
    "merged": "out",
    "left": "i",
    "right": "j",
    "merge_sorted": "zip_up",
    "key": "by",
}


def unified(before: str, after: str, path: str = "lib.py") -> str:
    """A patch of one file, with three lines of context."""
    old, new = (text.splitlines(keepends=True) for text in (before, after))
    body = "".join(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}"))
    return f"diff --git a/{path} b/{path}\n{body}"


def record(
    name: str,
    before: str,
    after: str,
    *,
    path: str = "lib.py",
    repo: str = "",
    told: str = "",
    base: str | None = None,
    fix: str | None = None,
    at: datetime | None = None,
) -> Material:
    """The record of a change of one file. Without ``repo`` it has a repository of its own."""
    patch = unified(before, after, path)
    return Material(
        id=name,
        origin="made",
        repo=repo or name,
        base_commit=base,
        fix_commit=fix,
        created_at=at,
        patches=(patch,),
        functions=tuple(touched_functions(path, before, after, hunks_of(patch))),
        statements=(told,) if told else (),
    )


def bug(name: str, healthy: str, old: str, new: str, **more: str) -> Material:
    """The record of a bug: ``old`` of the healthy source, which it must have once, was broken to ``new``."""
    assert healthy.count(old) == 1
    return record(
        name,
        healthy.replace(old, new),
        healthy,
        repo=more.get("repo", ""),
        told=more.get("told", ""),
        path=more.get("path", "lib.py"),
    )


def prints(*materials: Material) -> list[Fingerprint]:
    """Their fingerprints."""
    return [fingerprint(material) for material in materials]


def made_task(objects: ObjectStore, name: str, healthy: str, old: str, new: str, **source: object) -> Task:
    """A task of one file ``lib.py`` in which ``old`` was broken to ``new``."""
    assert healthy.count(old) == 1
    workspace = tree_of(objects, {"lib.py": healthy.replace(old, new)})
    gold = diff_trees(objects, workspace, tree_of(objects, {"lib.py": healthy}))
    made = Source.model_validate({"kind": "synthetic", "repo": name, **source})
    changes: Mapping[str, object] = {
        "workspace": workspace,
        "gold_patch": gold,
        "source": made,
        "key_files": ("lib.py",),
        "scope": patch_scope(gold),
    }
    return make_task(name).model_copy(update=dict(changes))


def made_set(folder: Path, tasks: Sequence[Task], objects: ObjectStore) -> TaskSet:
    """A task set on disk."""
    folder.mkdir()
    write_task_set(folder, TaskSetManifest(name="made", recipe={"seed": 1}, funnel={}, created_at=THEN), tasks, objects)
    return TaskSet.load(folder)
