"""What a run was made of, and what a task set was made of."""

from datetime import datetime

from pydantic import JsonValue

from patchgym.records.base import VersionedRecord


class RunManifest(VersionedRecord):
    """``run.json``: everything that it takes to say whether two runs are the same experiment.

    ``config`` is the resolved configuration; ``task_hashes`` map task ids to content hashes.
    """

    id: str
    command: str
    config: dict[str, JsonValue]
    versions: dict[str, str]
    task_hashes: dict[str, str]
    seed: int
    created_at: datetime


class TaskSetManifest(VersionedRecord):
    """``taskset.json``: how a task set was made. ``funnel`` counts candidates by what became of them."""

    name: str
    recipe: dict[str, JsonValue]
    funnel: dict[str, int]
    created_at: datetime
