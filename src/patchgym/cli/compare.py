"""``patchgym compare``: finished evaluations against each other, without running anything."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from patchgym.cli.console import show_json, show_line, show_table
from patchgym.cli.eval import interval, show_details, show_eval, show_power
from patchgym.errors import UsageError
from patchgym.evaluate import Comparison, EvalReport, FailureType, compare
from patchgym.evaluate.kept import evaluations_of

_MOST_NAMED = 5


@click.command()
@click.argument("paths", metavar="EVAL...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--seed", default=0, show_default=True, help="Of the bootstrap.")
@click.option("--json", "as_json", is_flag=True, help="Print evaluations and comparisons as JSON.")
def command(paths: tuple[Path, ...], seed: int, as_json: bool) -> None:
    """Compare finished evaluations with the first of them, task by task.

    EVAL is a run directory (of eval, rollout or loop), or the file of one evaluation (RUN/eval/PHASE.json). Nothing is
    run. Only tasks that both sides have count; settings that differ are named. A single evaluation is only shown.
    """
    found = _named(paths, seed)
    names = list(found)
    done = [compare(found[names[0]], found[name], (names[0], name), seed=seed) for name in names[1:]]
    if as_json:
        show_json(
            {
                "evaluations": {name: report.model_dump(mode="json") for name, report in found.items()},
                "comparisons": [one.model_dump(mode="json") for one in done],
            }
        )
        return
    show_eval(found)
    if not done:
        show_details(next(iter(found.values())))
        return
    _show(done)


def _named(paths: Sequence[Path], seed: int) -> dict[str, EvalReport]:
    """The evaluations, each by a name that tells it from the others.

    Raises:
        UsageError: one is named twice.
    """
    found: dict[str, EvalReport] = {}
    for path in paths:
        if [one.resolve() for one in paths].count(path.resolve()) > 1:
            raise UsageError(f"{path} is named twice", mend="Name each evaluation once.")
        reports = evaluations_of(path, seed=seed)
        for phase, report in reports.items():
            name = path.absolute().name if len(reports) == 1 and path.is_dir() else f"{_run_of(path)} {phase}"
            found[name if name not in found else f"{path} {phase}"] = report
    return found


def _run_of(path: Path) -> str:
    """The name of the run that an evaluation is of."""
    return path.absolute().parent.parent.name if path.is_file() else path.absolute().name


def _show(done: Sequence[Comparison]) -> None:
    first = done[0].before
    rows = [
        (
            one.after,
            f"{one.pass_at_1_before.value:.3f}",
            f"{one.pass_at_1_after.value:.3f}",
            f"{one.difference.value:+.3f}",
            interval(one.difference, 3),
            f"{one.p_value:.2g}",
            str(one.tasks),
        )
        for one in done
    ]
    columns = ("compared", "before", "after", "differs by", "95%", "p", "tasks")
    show_table(f"\nAgainst {first}, on the tasks in common", columns, rows)
    for one in done:
        show_line(f"\n{one.verdict}")
        show_line(f"{one.after} solves {_counted(one.better, 'more often')}, {_counted(one.worse, 'less often')}.")
        effort = [
            f"{name} {estimate.value:+.1f} ({interval(estimate, 1)})"
            for name, estimate in (("steps", one.steps), ("sampled tokens", one.tokens))
            if estimate is not None
        ]
        if effort:
            show_line(f"Of an attempt, {one.after} less {first}: {', '.join(effort)}.")
        show_line(_shift(one.failures))
        show_power(one.power)
        for note in one.notes:
            show_line(f"Note: {note}")


def _counted(tasks: Sequence[str], how: str) -> str:
    shown = ", ".join(tasks[:_MOST_NAMED]) + (", ..." if len(tasks) > _MOST_NAMED else "")
    return f"{len(tasks)} {'task' if len(tasks) == 1 else 'tasks'} {how}" + (f" ({shown})" if shown else "")


def _shift(failures: Mapping[FailureType, tuple[int, int]]) -> str:
    """Where failures moved, the largest moves first."""
    moves = sorted(failures.items(), key=lambda item: -abs(item[1][1] - item[1][0]))
    told = [f"{kind.replace('_', ' ')} {old} -> {new}" for kind, (old, new) in moves if old != new]
    return f"Failures: {', '.join(told[:_MOST_NAMED])}." if told else "Failures: the same kinds as often."
