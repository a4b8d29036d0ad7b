"""The checklist while a run is made: after each part, and after each step of an update.

What is found is kept in the run (``gates.jsonl``). A finding that is broken pauses the run, unless the recipe says that
alarms only tell. Who goes on passes what the run has said so far, and nothing else: another finding pauses it again.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from patchgym.diagnose.checklist import diagnose
from patchgym.diagnose.checks.trend import too_far
from patchgym.diagnose.facts import Facts, Reader, read_facts
from patchgym.diagnose.rule import Rule
from patchgym.diagnose.settings import AlarmSettings, DiagnoseSettings
from patchgym.errors import PausedError
from patchgym.records import Checklist, Finding, Gate, Status, Trajectory
from patchgym.store import RunDirectory
from patchgym.train import StepReport


class Alarms:
    """Watches one run while it is made. ``go_on`` passes what the run has found broken before."""

    def __init__(
        self, run: RunDirectory, settings: DiagnoseSettings, alarms: AlarmSettings, *, go_on: bool = False
    ) -> None:
        self._run, self._settings, self._alarms = run, settings, alarms
        self._reader = Reader()
        self._reached: set[str] = set()
        self._passed = {
            finding.check
            for gate in (run.gates() if go_on else ())
            for finding in gate.checklist.findings
            if finding.status is Status.BROKEN
        }

    def reached(self, part: str) -> None:
        """A phase, or an update (``update NAME``), is done, now or before. Where parts are named, the rest of what lies
        in the run is not looked at: a run that goes on comes by its old places again, and each is judged by what it
        had."""
        self._reached.add(part)

    def after(self, place: str, found: Sequence[Trajectory] = (), *, stop: bool = False) -> Gate:
        """Look at the run as it stands after ``place``. ``found`` are trajectories of it that need not be read again;
        with ``stop`` it pauses whatever the recipe says of alarms.

        Raises:
            PausedError: something is broken, and nobody said to go on.
            StorageError: the disk is full or not writable.
        """
        if self._reader.about is not None:
            self._reader.take(found, self._reader.about.tasks)
        return self._gate(place, diagnose(self._facts(), self._settings, whole=True), stop)

    def at_the_end(self) -> Gate:
        """Look at the run once more when all is done: there is nothing left to pause.

        Raises:
            StorageError: the disk is full or not writable.
        """
        return self._kept("end", diagnose(self._facts(), self._settings, whole=True))[0]

    def _facts(self) -> Facts:
        facts, parts = read_facts(self._run, reader=self._reader), self._reached
        if not parts:
            return facts
        return replace(
            facts,
            attempts=tuple(one for one in facts.attempts if one.light.phase in parts),
            updates=tuple(update for update in facts.updates if f"update {update.name}" in parts),
            valued=tuple(one for one in facts.valued if one.phase in parts),
        )

    def steps(self, name: str, *, imitation: bool) -> "StepAlarm":
        """What watches the steps of the update ``name``."""
        return StepAlarm(self, name, imitation)

    def far(self, name: str, steps: Sequence[StepReport], imitation: bool) -> None:
        """Look at the steps of an update so far.

        Raises:
            PausedError: they move too far, and nobody said to go on.
        """
        why = too_far(steps, self._settings, imitation=imitation)
        if not why or "step size" in self._passed:
            return
        rule = Rule(4, "step size", "the thresholds of the check of this name", "measured")
        finding = rule.broken(
            f"{name}: {why}", "Lower the learning rate first (a third of it), then rows per step.", [name]
        )
        manifest = self._run.manifest
        checklist = Checklist(
            run=manifest.id,
            command=manifest.command,
            trajectories=0,
            findings=(finding,),
            verdict=f"Stop here: {finding.check}. {finding.action}",
        )
        self._gate(f"{name}, step {len(steps)}", checklist, False)

    def _gate(self, place: str, checklist: Checklist, stop: bool) -> Gate:
        gate, broken = self._kept(place, checklist)
        if broken and (stop or self._alarms.pause):
            raise _paused(place, broken[0])
        return gate

    def _kept(self, place: str, checklist: Checklist) -> tuple[Gate, list[Finding]]:
        """The gate, kept in the run, and what is broken that nobody went on from."""
        broken = [one for one in checklist.findings if one.status is Status.BROKEN and one.check not in self._passed]
        gate = Gate(place=place, made_at=datetime.now(UTC), passed=not broken, checklist=checklist)
        self._run.keep_gate(gate)
        return gate, broken


class StepAlarm:
    """Told of every step report of one update, as an update calls it."""

    def __init__(self, alarms: Alarms, name: str, imitation: bool) -> None:
        self._alarms, self._name, self._imitation = alarms, name, imitation
        self._steps: list[StepReport] = []

    def __call__(self, number: int, report: StepReport) -> None:
        """Take one more step report.

        Raises:
            PausedError: the steps move too far, and nobody said to go on.
        """
        self._steps.append(report)
        self._alarms.far(self._name, self._steps, self._imitation)


def _paused(place: str, finding: Finding) -> PausedError:
    return PausedError(
        f"Paused after {place}: {finding.check} is broken (step {finding.step} of the checklist)",
        why=f"{finding.evidence}.",
        mend=f"{finding.action} To go on all the same: the same command with --go-on.",
    )
