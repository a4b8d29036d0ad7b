"""Candidates with planted bugs."""

import hashlib

from patchgym.content import Entry, ObjectStore, diff_trees
from patchgym.records import Source
from patchgym.tasks.bugs.bug import Bug
from patchgym.tasks.sources.candidates import Candidate
from patchgym.tasks.sources.project import Revision


def planted_candidate(revision: Revision, objects: ObjectStore, bug: Bug) -> Candidate:
    """The revision with a bug planted in it; the gold patch takes it out again."""
    entries = objects.entries(revision.tree)
    changes = {path: Entry(entries[path].mode, objects.put(text.encode())) for path, text in bug.changes.items()}
    broken = objects.update_tree(revision.tree, changes)
    patch = diff_trees(objects, broken, revision.tree)
    source = Source(
        kind="synthetic",
        repo=revision.name,
        version=revision.version,
        base_commit=revision.tree,
        license=revision.project.license or None,
        created_at=revision.created_at,
        change=bug.change,
    )
    return Candidate(
        id=f"{revision.label}-syn-{hashlib.sha256(patch.encode()).hexdigest()[:8]}",
        revision=revision,
        source=source,
        broken=broken,
        healthy=revision.tree,
        gold_patch=patch,
        functions=frozenset(bug.functions),
        statement=bug.statement,
        exercised=bug.exercised,
        difficulty=bug.difficulty,
    )
