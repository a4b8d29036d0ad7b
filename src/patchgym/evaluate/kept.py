"""Evaluations in run directories and files."""

from pathlib import Path

from patchgym.errors import DataError, UsageError
from patchgym.evaluate.report import EvalReport, evaluate
from patchgym.store import RunDirectory

_LARGEST = 256 * 1024**2
_MEASURING = "eval-"


def keep(run: RunDirectory, phase: str, report: EvalReport) -> Path:
    """Keep the evaluation of a phase in its run; where it lies.

    Raises:
        StorageError: the disk is full or not writable.
    """
    return run.keep_evaluation(phase, report.model_dump_json(indent=1))


def evaluations_of(path: Path, *, seed: int = 0) -> dict[str, EvalReport]:
    """What is evaluated at ``path``, by phase: one file that holds an evaluation, or a run. Of a run the evaluations
    that it keeps, and where it keeps none, those of its phases, measured now (of a closed loop the held-out ones).
    Nothing is written.

    Raises:
        UsageError: there is neither at ``path``.
        DataError: what is there is damaged, of another version, or nobody graded any of it.
    """
    if path.is_file():
        return {path.stem: read_evaluation(path)}
    if not (path / "run.json").is_file():
        raise UsageError(
            f"There is no evaluation at {path}",
            why="It is no run directory, and no file." if path.exists() else "There is nothing.",
            mend="Name a run, or the file of an evaluation (RUN/eval/PHASE.json).",
        )
    run = RunDirectory.read(path)
    kept = {phase: read_evaluation(file) for phase, file in run.evaluations().items()}
    if kept:
        return kept
    found = {phase: evaluate_phase(run, phase, seed=seed) for phase in _phases(run)}
    measured = {phase: report for phase, report in found.items() if report.trajectories > report.ungraded}
    if not measured:
        raise DataError(
            f"Nobody graded what is in {path}",
            why=f"It has {len(run.ids)} trajectories, none with a verdict.",
            mend=f"Grade them on their tasks: patchgym eval TASKSET --attempts {path} --out RUN2"
            if run.ids
            else "Collect some: patchgym eval --help",
        )
    return measured


def evaluate_phase(run: RunDirectory, phase: str, *, seed: int = 0) -> EvalReport:
    """The evaluation of one phase of a run, from its trajectories."""
    tasks = run.tasks()
    objects = run.objects if tasks else None
    notes = [f"{len(run.problems)} problems of the run, the first: {run.problems[0]}"] if run.problems else []
    if run.in_progress:
        notes.append("The run is still being written: these are the attempts so far.")
    found = map(run.trajectory, run.phases.get(phase, []))
    return evaluate(found, list(tasks.values()), seed=seed, objects=objects, notes=notes)


def read_evaluation(path: Path) -> EvalReport:
    """An evaluation from its file.

    Raises:
        UsageError: there is no such file, or it cannot be read.
        DataError: it is damaged, of another version, or no evaluation.
    """
    try:
        if path.stat().st_size > _LARGEST:
            raise DataError(f"{path} is larger than an evaluation can be", mend="Name the file RUN/eval/PHASE.json.")
        return EvalReport.from_line(path.read_bytes(), where=str(path))
    except OSError as error:
        raise UsageError(f"Cannot read {path}", why=str(error), mend="Name a run or an evaluation.") from error


def _phases(run: RunDirectory) -> list[str]:
    """The phases that are worth comparing: those that measure, where there are any."""
    found = list(run.phases)
    return [phase for phase in found if phase.startswith(_MEASURING)] or found
