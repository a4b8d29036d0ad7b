"""``patchgym value report``: a value model against what became of attempts."""

from pathlib import Path

import click

from patchgym.cli.console import say, show_json, show_line, show_table
from patchgym.errors import DataError


@click.command()
@click.argument("model_path", metavar="MODEL", type=click.Path(path_type=Path))
@click.argument("run_path", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--hash", "expected", default="", help="Refuse a model with another hash.")
@click.option("--tasks", type=click.Choice(["unseen", "all"]), help="Which tasks. [default: unseen, if there are any]")
@click.option("--svg", type=click.Path(path_type=Path), help="Write the reliability plot here.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    model_path: Path, run_path: Path, expected: str, tasks: str | None, svg: Path | None, as_json: bool
) -> None:
    """AUC, Brier, calibration error with bin counts, and what selecting by the score is worth, on a run's attempts."""
    from patchgym.cli.value.attempts import figures, graded, opened, run_name, scored, told
    from patchgym.content import disk_errors
    from patchgym.reward.value import quality
    from patchgym.reward.value.opened import load_value
    from patchgym.reward.value.plot import svg_plot, text_plot

    model = load_value(model_path, expected)
    (run,) = opened([run_path])
    if run_name(run.manifest) in model.fitted_on.runs:
        say("  The model was fitted on this run: its attempts are no fresh ones.")
    attempts = graded(scored(model, run))
    seen = set(model.fitted_on.tasks)
    unseen = [one for one in attempts if one.task_id not in seen]
    chosen = unseen if tasks == "unseen" or (tasks is None and unseen) else attempts
    if not chosen:
        raise DataError(
            f"{run_path} holds no attempt to measure on",
            why=f"Of {len(attempts)} graded attempts none is at a task that the model has not seen.",
            mend="Give --tasks all, or a run on other tasks.",
        )
    fresh = len({one.task_id for one in chosen} - seen)
    report = quality(chosen)
    if svg is not None:
        with disk_errors(svg):
            svg.write_text(svg_plot(report.steps.bins, f"{model_path.name} on {run_path.name}"), encoding="utf-8")
    if as_json:
        show_json({"hash": model.hash, "unseen_tasks": fresh, "report": report.model_dump(mode="json")})
        return
    show_line(f"{report.attempts} attempts at {report.tasks} tasks, of which the model has not seen {fresh}")
    show_table("95% intervals over tasks", ("", "every step", "halfway", "at the end"), figures(report))
    show_line(text_plot(report.steps.bins))
    if report.selection:
        rows = [(one.kept, str(one.attempts), told(one.solved), f"{one.solved_of_all:.3f}") for one in report.selection]
        show_table("Keeping of each task", ("kept", "attempts", "solved", "of all"), rows)
