"""Frozen, versioned data. No I/O, no behaviour beyond views of itself."""

from patchgym.records.base import Record, VersionedRecord
from patchgym.records.message import Message, Sample, Sampling, StepTokens, ToolCall, ToolSpec, Usage
from patchgym.records.report import Outcome, Tally, TestReport, Verdict
from patchgym.records.reward import Reward, Term
from patchgym.records.run import RunManifest, TaskSetManifest
from patchgym.records.task import (
    Difficulty,
    Distribution,
    Environment,
    Foreign,
    Limits,
    MutantScore,
    Scope,
    Source,
    Task,
    TaskView,
    Tests,
    Validation,
)
from patchgym.records.trajectory import (
    Action,
    Fault,
    Observation,
    PolicyRef,
    Step,
    StopReason,
    Stream,
    Timing,
    Trajectory,
)

__all__ = [
    "Action",
    "Difficulty",
    "Distribution",
    "Environment",
    "Fault",
    "Foreign",
    "Limits",
    "Message",
    "MutantScore",
    "Observation",
    "Outcome",
    "PolicyRef",
    "Record",
    "Reward",
    "RunManifest",
    "Sample",
    "Sampling",
    "Scope",
    "Source",
    "Step",
    "StepTokens",
    "StopReason",
    "Stream",
    "Tally",
    "Task",
    "TaskSetManifest",
    "TaskView",
    "Term",
    "TestReport",
    "Tests",
    "Timing",
    "ToolCall",
    "ToolSpec",
    "Trajectory",
    "Usage",
    "Validation",
    "Verdict",
    "VersionedRecord",
]
