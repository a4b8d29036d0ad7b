"""What is stored of a task's probes: calls with what they must come to."""

import json
from typing import ClassVar, Literal

from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.errors import DataError
from patchgym.records import Task
from patchgym.records.base import Record, VersionedRecord


class Probe(Record):
    """One call with its known result."""

    function: str
    """The qualified name of what is called."""
    kind: Literal["recorded", "varied"]
    """Whether a test makes it with these very arguments, or they were varied."""
    test: str
    """The test that it was recorded in."""
    boundary: bool
    """Whether test code makes it; else it is one of a touched function's own."""
    steps: list[JsonValue]
    """The program that makes it (``inside/calling.py``)."""
    expected: dict[str, JsonValue]
    """What it tells on the solution."""
    counts: bool
    """Whether an attempt must answer it; else it is advice."""
    private: bool = False
    """Whether a helper is called that is not asked where an attempt has it no more, or with other parameters."""
    steady: bool = False
    """Whether the solution answers the same under test and alone."""
    noticing: bool = False
    """Whether the workspace as it is answers otherwise."""


class ProbeSet(VersionedRecord):
    """The probes of one task. ``left_out`` counts recorded calls that make none, by the reason."""

    VERSION: ClassVar[int] = 1

    schema_version: int = 1
    probes: tuple[Probe, ...]
    recorded: int
    """Different calls that were recorded while the solution passed its tests."""
    left_out: dict[str, int]
    seconds: float
    """Wall seconds that making them took."""

    @property
    def counting(self) -> tuple[Probe, ...]:
        """Those that count."""
        return tuple(probe for probe in self.probes if probe.counts)

    def counts(self) -> dict[str, int]:
        """How many calls were recorded, how many of those are asked and count, how many of these the workspace as it is
        answers wrongly, and how many variations there are and count."""
        counting = self.counting
        return {
            "recorded": self.recorded,
            "counting": sum(probe.kind == "recorded" for probe in counting),
            "noticing": sum(probe.noticing for probe in counting),
            "varied": sum(probe.kind == "varied" for probe in self.probes),
            "varied_counting": sum(probe.kind == "varied" for probe in counting),
        }

    def modules(self) -> list[str]:
        """The modules that the programs name, sorted."""
        found: set[str] = set()
        for probe in self.probes:
            _collect(probe.steps, found)
        return sorted(found)


def _collect(spec: JsonValue, found: set[str]) -> None:
    match spec:
        case ["g", str(module), str()] | ["m", str(module)]:
            found.add(module)
        case list():
            for one in spec:
                _collect(one, found)
        case dict():
            for one in spec.values():
                _collect(one, found)


def load_probes(objects: ObjectStore, task: Task) -> ProbeSet | None:
    """The probes of a task; None where it has none.

    Raises:
        DataError: they are missing, damaged or of another version.
    """
    if task.probes is None:
        return None
    try:
        return ProbeSet.from_line(objects.get(task.probes), where=f"probes of {task.id}")
    except RecursionError:
        raise DataError(
            f"probes of {task.id}: nested too deep", mend="Make them again: patchgym tasks probe."
        ) from None


def store_probes(objects: ObjectStore, task: Task, probes: ProbeSet) -> Task:
    """The task with its probes in the store; with none where there is nothing to ask."""
    if not probes.probes:
        return task.model_copy(update={"probes": None})
    data = json.dumps(probes.model_dump(mode="json"), separators=(",", ":")).encode()
    return task.model_copy(update={"probes": objects.put(data)})
