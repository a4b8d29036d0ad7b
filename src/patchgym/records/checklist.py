"""What a checklist over a run found: each check with its evidence, in the order in which causes hide each other."""

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field

from patchgym.records.base import Record, VersionedRecord


class Status(StrEnum):
    """``ok``: as it should be. ``broken``: mend it before going on. ``unknown``: this run does not tell."""

    OK = "ok"
    BROKEN = "broken"
    UNKNOWN = "unknown"


class Finding(Record):
    """One check: how it stands, why that is thought, and what to do."""

    step: int
    """Its place in the order of looking: 1 tasks, 2 recording, 3 rewards, 4 trend, 5 held-out, 6 drift and hacks."""
    check: str
    """Its name."""
    status: Status
    """How it stands."""
    evidence: str
    """What was seen, with figures; of ``unknown``, why it is."""
    threshold: str
    """What it was held against."""
    source: Literal["article", "measured", "convention"]
    """Where that comes from: the article that asks for the check, our own measurements, or what is usual elsewhere."""
    confidence: Literal["high", "medium", "low"]
    """``high``: a fact of the record, or beyond chance at 1%. ``medium``: beyond chance at 5%, or many attempts against
    a threshold. ``low``: few attempts."""
    action: str = ""
    """What to do next; empty where nothing is to be done."""
    named: tuple[str, ...] = ()
    """The tasks and trajectories that show it, the first few."""
    figures: dict[str, float] = Field(default_factory=dict)
    """The figures of the evidence by name."""


_OF_THE_PIPELINE = ("rows", "sampler gap")
_OF_THE_POLICY = ("protocol", "copies")


class Checklist(VersionedRecord):
    """The findings over one run in order. It stops at the first that is broken, unless all were asked for."""

    run: str
    """The id of the run."""
    command: str
    """What made it: ``loop``, ``rollout``, ``search``, ``train``, ``import``."""
    against: str | None = None
    """The id of the run that it was compared with."""
    trajectories: int
    """How many were read."""
    findings: tuple[Finding, ...]
    """What was looked at."""
    left: tuple[str, ...] = ()
    """The checks that were not looked at, because something before them is broken."""
    verdict: str
    """What it comes to, in a sentence or two."""
    thresholds: dict[str, float] = Field(default_factory=dict)
    """The settings of the checks, by name."""

    @property
    def first(self) -> Finding | None:
        """The first broken link; None where nothing is broken."""
        return next((finding for finding in self.findings if finding.status is Status.BROKEN), None)

    @property
    def sound(self) -> bool:
        """Whether nothing speaks against tasks, recording and what updates are made of. What is broken otherwise is
        what a policy or its training came to."""
        return not any(
            finding.status is Status.BROKEN and (finding.step <= 2 or finding.check in _OF_THE_PIPELINE)
            for finding in self.findings
            if finding.check not in _OF_THE_POLICY
        )


class Gate(VersionedRecord):
    """One line of ``gates.jsonl``: a checklist at one place of a run, and whether the run may go on from there."""

    place: str
    """After what: ``round-1``, ``stage-2``, ``round-1, step 7``, ``end``."""
    made_at: datetime
    """When."""
    passed: bool
    """Whether nothing is broken that was not passed before."""
    checklist: Checklist
    """What was found."""
