"""What the value commands read: the attempts of runs, labelled or scored."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from patchgym.cli.console import say, stage
from patchgym.records import Limits, RunManifest, Trajectory
from patchgym.reward.value import LabelledPath, Scored, ValueReport, label_paths, outcome_of
from patchgym.reward.value.head import ValueHead
from patchgym.reward.value.model import ValueModel
from patchgym.reward.value.quality import Measured
from patchgym.store import RunDirectory


def opened(paths: Iterable[Path]) -> list[RunDirectory]:
    """The runs, with what is wrong with them said.

    Raises:
        UsageError, DataError: there is no run, or it cannot be read.
    """
    runs = [RunDirectory.read(path) for path in paths]
    for run in runs:
        for problem in run.problems:
            say(f"  {problem}")
    return runs


def run_name(manifest: RunManifest) -> str:
    """What a model keeps of a run that it was fitted on."""
    return f"{manifest.id} {manifest.created_at.isoformat()}"


def task_limits(runs: Iterable[RunDirectory]) -> dict[str, Limits]:
    """The limits of the runs' tasks."""
    return {name: task.limits for run in runs for name, task in run.tasks().items()}


def labelled(runs: Sequence[RunDirectory], split: str, *, own_outcome: bool) -> list[LabelledPath]:
    """Every graded attempt of the runs with labels; of tasks of one split, or ``all``. Groups of different runs stay
    apart."""
    paths: list[LabelledPath] = []
    for run in runs:
        tasks = run.tasks()
        single = (one for one in run.trajectories if one.tree_id is None)
        for path in label_paths(single, run.trees, own_outcome=own_outcome):
            if split == "all" or (path.task_id in tasks and tasks[path.task_id].split == split):
                paths.append(path)
    return paths


def scored(model: ValueModel | ValueHead, run: RunDirectory) -> list[tuple[Trajectory, tuple[float, ...]]]:
    """Every attempt of a run that has steps, with the score after each of them."""
    limits = task_limits([run])
    found = []
    with stage("Score", len(run.ids)) as shown:
        for number, one in enumerate(run.trajectories, 1):
            if one.steps:
                found.append((one, tuple(model.values(one.steps, limits.get(one.task_id)))))
            shown.update(number)
    return found


def graded(pairs: Iterable[tuple[Trajectory, tuple[float, ...]]]) -> list[Scored]:
    """Those of scored attempts that have an outcome."""
    return [
        Scored(one.id, one.task_id, one.group_id, scores, outcome)
        for one, scores in pairs
        if (outcome := outcome_of(one)) is not None
    ]


def figures(report: ValueReport) -> list[tuple[str, str, str, str]]:
    """A report's figures as rows: of all steps, halfway and at the end."""
    parts = (report.steps, report.halfway, report.ends)
    rows = [
        ("scores", *(str(part.scores) for part in parts)),
        ("solved", *(f"{part.solved:.3f}" for part in parts)),
        ("AUC", *(told(part.auc) for part in parts)),
        ("AUC within tasks", *(told(part.auc_within_tasks) for part in parts)),
        ("Brier", *(told(part.brier) for part in parts)),
        ("Brier of a constant", *(f"{part.brier_constant:.3f}" for part in parts)),
        ("calibration error", *(told(part.ece) for part in parts)),
    ]
    return [(name, a, b, c) for name, a, b, c in rows]


def told(measured: Measured) -> str:
    """A figure with its interval."""
    if measured.value is None:
        return "-"
    ends = f" ({measured.low:.3f} to {measured.high:.3f})" if measured.low is not None else ""
    return f"{measured.value:.3f}{ends}"
