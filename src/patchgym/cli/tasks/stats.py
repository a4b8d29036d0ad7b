"""``patchgym tasks stats``: what a task set is made of."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import click
from pydantic import JsonValue

from patchgym.cli.console import show_json, show_line, show_table
from patchgym.records import Task
from patchgym.tasks import TaskSet

_BANDS = ((0.2, "easy (under 0.2)"), (0.4, "middling (under 0.4)"), (1.01, "hard"))


@click.command()
@click.argument("taskset", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(taskset: Path, as_json: bool) -> None:
    """Sources, difficulty, scope, licences, tests and duplicates of a set."""
    from patchgym.tasks.overlap.fingerprints import fingerprint_tasks
    from patchgym.tasks.overlap.pairs import find_overlap

    found = TaskSet.load(taskset)
    overlap = find_overlap(fingerprint_tasks(found.tasks, found.objects))
    size = sum(file.stat().st_size for file in taskset.rglob("*") if file.is_file())
    counts = {name: _counted(found.tasks, part) for name, part in _PARTS.items()}
    scores = [score for task in found.tasks if (score := _killed(task)) is not None]
    figures: dict[str, JsonValue] = {
        "tasks": len(found.tasks),
        "proved": sum(task.validation is not None and task.validation.proved for task in found.tasks),
        "bytes_per_task": size // max(len(found.tasks), 1),
        "duplicates": len(overlap.duplicates),
        "mutants_killed": round(sum(scores) / len(scores), 3) if scores else None,
        "flaky_tests": sum(len(tests) for tests in found.manifest.flaky.values()),
        "fail_to_pass_median": median(len(task.tests.fail_to_pass) for task in found.tasks) if found.tasks else None,
        "pass_to_pass_median": median(len(task.tests.pass_to_pass) for task in found.tasks) if found.tasks else None,
    }
    if as_json:
        show_json({**figures, **{name: dict(part) for name, part in counts.items()}})
        return
    rows = [
        (name if first else "", key, str(count), f"{count / len(found.tasks):.0%}")
        for name, part in counts.items()
        for first, (key, count) in zip([True, *[False] * len(part)], part, strict=False)
    ]
    show_table(taskset.name, ("by", "", "tasks", "share"), rows)
    show_line("; ".join(f"{name.replace('_', ' ')} {value}" for name, value in figures.items() if value is not None))


def _counted(tasks: Sequence[Task], part: Callable[[Task], str]) -> list[tuple[str, int]]:
    return Counter(map(part, tasks)).most_common()


def _band(task: Task) -> str:
    if task.difficulty is None:
        return "not estimated"
    return next(name for below, name in _BANDS if task.difficulty.score < below)


def _scope(task: Task) -> str:
    files = "one file" if task.scope.files == 1 else f"{task.scope.files} files"
    lines = task.scope.lines
    size = "up to 2 lines" if lines <= 2 else "up to 10" if lines <= 10 else "up to 40" if lines <= 40 else "over 40"
    return f"{files}, {size}"


def _killed(task: Task) -> float | None:
    mutants = task.validation.mutants if task.validation is not None else None
    return mutants.share_killed if mutants is not None else None


_PARTS: dict[str, Callable[[Task], str]] = {
    "split": lambda task: task.split,
    "source": lambda task: task.source.kind,
    "repository": lambda task: task.source.repo,
    "statement": lambda task: task.source.statement or "as it came",
    "difficulty": _band,
    "scope": _scope,
    "licence": lambda task: task.source.license or "unknown",
}
