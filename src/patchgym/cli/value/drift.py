"""``patchgym value drift``: a value model's scores of new rounds against those of the time when it was fitted."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchgym.cli.console import number, show_json, show_line, show_table
from patchgym.errors import UsageError

if TYPE_CHECKING:
    from patchgym.diagnose.drift import Drift


@click.command()
@click.argument("model_path", metavar="MODEL", type=click.Path(path_type=Path))
@click.argument("paths", metavar="RUN...", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--reference", type=click.Path(path_type=Path), help="A run to compare with, not the model's own scores.")
@click.option("--hash", "expected", default="", help="Refuse a model with another hash.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(model_path: Path, paths: tuple[Path, ...], reference: Path | None, expected: str, as_json: bool) -> None:
    """Compare the scores of every round of the runs (a phase is a round) with the reference.

    PSI, Kolmogorov-Smirnov, and agreement with the verdicts. Exit code 1 when an alarm is up.
    """
    from patchgym.cli.value.attempts import graded, opened, scored
    from patchgym.diagnose.drift import Level, drift
    from patchgym.reward.value.opened import load_value

    model = load_value(model_path, expected)
    old, outcomes = model.reference.scores, model.reference.outcomes
    if reference is not None:
        known = graded(scored(model, opened([reference])[0]))
        old, outcomes = tuple(one.scores[-1] for one in known), tuple(one.outcome for one in known)
    found: list[Drift] = []
    for path, run in zip(paths, opened(paths), strict=True):
        rounds = dict.fromkeys(one.phase for one in run.trajectories)
        pairs = scored(model, run)
        for name in rounds:
            here = [(one, scores) for one, scores in pairs if one.phase == name]
            labels = [(one.scores[-1], one.outcome) for one in graded(here)]
            title = f"{path.name}: {name}"
            found.append(drift(title, old, [scores[-1] for _, scores in here], outcomes, labels))
    if not found:
        raise UsageError("There is nothing to compare", why="The runs hold no trajectories.")
    alarm = any(one.level is Level.BROKEN for one in found)
    if as_json:
        show_json({"hash": model.hash, "alarm": alarm, "rounds": [one.model_dump(mode="json") for one in found]})
    else:
        show_table(
            f"Against {len(old)} scores",
            ("", "round", "scores", "PSI", "over", "KS", "over", "agrees", "was"),
            [_row(one) for one in found],
        )
        for one in found:
            if one.action:
                show_line(f"{one.name}: {one.why}. {one.action}")
    sys.exit(1 if alarm else 0)


def _row(one: "Drift") -> tuple[str, ...]:
    agreed = one.agreement
    figures = (one.psi, one.psi_threshold, one.ks, one.ks_threshold)
    agreements = (agreed.fresh, agreed.reference) if agreed is not None else (None, None)
    return str(one.level), one.name, str(one.fresh), *(number(value) for value in (*figures, *agreements))
