"""What a run was made of, and what a task set was made of."""

from datetime import datetime

from pydantic import Field, JsonValue

from patchgym.records.base import VersionedRecord
from patchgym.records.report import Outcome


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
    """``taskset.json``: how a task set was made.

    ``funnel`` counts candidates stage by stage, in order, ``dropped`` those that fell out, by the reason, ``refused``
    what never was a candidate (commits that change no test, say). ``examples`` has, by the reason, what was said of the
    first code base that no environment could be built for. ``flaky`` is the ledger of tests whose outcomes did not
    agree over healthy runs, by revision; they decide nothing. ``sources`` maps what was read to its SHA-256 or commit,
    ``logs`` logged sessions that made no task to the reason. ``seconds`` is wall time, over all sittings.
    """

    name: str
    recipe: dict[str, JsonValue]
    funnel: dict[str, int]
    dropped: dict[str, int] = Field(default_factory=dict)
    refused: dict[str, int] = Field(default_factory=dict)
    examples: dict[str, str] = Field(default_factory=dict)
    flaky: dict[str, dict[str, tuple[Outcome, ...]]] = Field(default_factory=dict)
    sources: dict[str, str] = Field(default_factory=dict)
    logs: dict[str, str] = Field(default_factory=dict)
    seconds: float = 0.0
    created_at: datetime
