"""``patchgym value fit``: a value model out of runs."""

from pathlib import Path

import click

from patchgym.cli.console import show_json, show_line, show_table, stage
from patchgym.config import assigned


@click.command()
@click.argument("paths", metavar="RUN...", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The model: a file, with --head a folder.")
@click.option("--head", metavar="MODEL", help="Fit a head on this language model (a name or a folder), not trees.")
@click.option("--split", type=click.Choice(["all", "train", "heldout"]), default="all", show_default=True)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="iterations, leaves, folds, levels, ...")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(
    paths: tuple[Path, ...], out: Path, head: str | None, split: str, overrides: tuple[str, ...], as_json: bool
) -> None:
    """Learn how likely an attempt is to solve its task, from what became of the attempts and search trees of runs.

    The figures are of attempts at tasks that the model which scored them had not seen.
    """
    from patchgym.cli.value.attempts import figures, labelled, opened, run_name, task_limits
    from patchgym.reward.value import FitSettings, fit, quality
    from patchgym.reward.value.head import ValueHead, fit_head
    from patchgym.reward.value.model import ValueModel
    from patchgym.reward.value.plot import text_plot

    settings = assigned(FitSettings, overrides, "--set")
    runs = opened(paths)
    with stage("Fit"):
        found = labelled(runs, split, own_outcome=settings.labels == "outcome")
        names = [run_name(run.manifest) for run in runs]
        model: ValueModel | ValueHead
        if head is not None:
            model, held_out = fit_head(found, head.removeprefix("local:"), settings, names)
        else:
            model, held_out = fit(found, settings, task_limits(runs), names)
        model.save(out)
        report = quality(held_out, seed=settings.seed)
    if as_json:
        show_json({"model": str(out), "hash": model.hash, "held_out": report.model_dump(mode="json")})
        return
    about = model.fitted_on
    sources = ", ".join(f"{count} by {source}" for source, count in sorted(about.labels.items()))
    show_line(f"{about.trajectories} attempts at {len(about.tasks)} tasks, {about.steps} steps (labels: {sources})")
    title = "On tasks that were not seen (95% intervals over tasks)"
    show_table(title, ("", "every step", "halfway", "at the end"), figures(report))
    show_line(text_plot(report.steps.bins))
    show_line(f"\nThe model is {out}, hash {model.hash}")
