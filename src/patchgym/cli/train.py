"""``patchgym train``: one update, made, gone on with, made again or only counted."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import JsonValue

from patchgym.cli.console import say, show_json
from patchgym.cli.loggers import LOGGERS, check_loggers, logging_to
from patchgym.cli.recipe import TrainRecipe
from patchgym.config import load_recipe
from patchgym.errors import DataError, UsageError
from patchgym.train import OnReport, PolicyGradientSettings, StepReport, UpdateReport, grpo, sft
from patchgym.train.algorithms import ALGORITHMS

if TYPE_CHECKING:
    from patchgym.cli.train_data import Material
    from patchgym.store import RunDirectory


@click.command()
@click.argument("recipe", metavar="RECIPE|RUN")
@click.option("--run", "runs", multiple=True, metavar="RUN", help="Trajectories to train on; may be repeated.")
@click.option("--start", metavar="MODEL", help="The model or checkpoint to train. [of the recipe]")
@click.option("--out", type=click.Path(path_type=Path), help="The run directory of the update. [runs/RECIPE]")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the recipe.")
@click.option("--log", "loggers", multiple=True, type=click.Choice(LOGGERS), help="Write steps there too.")
@click.option("--replay", "step", type=click.IntRange(1), metavar="STEP", help="Make that step of RUN again; compare.")
@click.option("--go-on", is_flag=True, help="Go on past what the run has found broken so far.")
@click.option("--dry-run", is_flag=True, help="Only count rows, ids, bytes and time; load no weights.")
@click.option("--rows", type=click.Path(path_type=Path), help="Only write the rows, a Parquet file; load no weights.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    recipe: str,
    runs: tuple[str, ...],
    start: str | None,
    out: Path | None,
    overrides: tuple[str, ...],
    loggers: tuple[str, ...],
    step: int | None,
    go_on: bool,
    dry_run: bool,
    rows: Path | None,
    as_json: bool,
) -> None:
    """Make one update of a policy from the trajectories of runs. RECIPE is an embedded recipe's name or a .toml file.

    An update that was interrupted goes on with the same command. One whose steps go wrong pauses, unless the recipe
    says alarms.pause = false. With --replay, RUN is the run directory of an update or RUN/updates/NAME, and nothing is
    written.
    """
    if step is not None:
        from patchgym.cli.replayed import replay_step

        sys.exit(replay_step(Path(recipe), step, as_json))
    asked = {"runs": list(runs), "start": start}
    given = (f"{key}={json.dumps(value)}" for key, value in asked.items() if value)
    settings = load_recipe(TrainRecipe, recipe, [*overrides, *given])
    where = out or Path(settings.out or Path("runs") / Path(recipe).stem)
    if dry_run:
        from patchgym.cli.dry_run import dry_run as only_count

        sys.exit(only_count(settings, as_json))
    if rows is not None:
        from patchgym.cli.train_rows import hand_over

        hand_over(settings, rows, as_json)
        return
    if settings.algorithm == "reward_model":
        _fit_value(settings, where, as_json)
        return
    check_loggers(loggers)
    report = _updated(settings, where, loggers, go_on)
    if as_json:
        show_json(report)
    else:
        from patchgym.cli.updating import show_update

        show_update(report)
    sys.exit(0 if report.version is not None else 1)


def _updated(recipe: TrainRecipe, out: Path, loggers: tuple[str, ...], go_on: bool) -> UpdateReport:
    """The update of a recipe in its run directory, made now or before."""
    from patchgym.cli.train_data import gather
    from patchgym.cli.workshop import log_rewards, make_manifest
    from patchgym.diagnose import Alarms
    from patchgym.reward import settle
    from patchgym.rollout import count_run
    from patchgym.store import RunDirectory

    if any(out.resolve() == Path(name).resolve() for name in recipe.runs):
        raise UsageError(f"{out} is a run that is trained on", mend="Choose another --out: an update has its own.")
    material = gather(recipe)
    config = recipe.model_dump(mode="json", exclude={"out", "shape", "expected", "machine", "diagnose", "alarms"})
    manifest = make_manifest("train", config, list(material.tasks.values()), recipe.settings.seed)
    run = RunDirectory.open_for_writing(out, manifest)
    try:
        known = _kept(run, recipe.algorithm)
        if known is not None:
            say(f"{recipe.algorithm} is done already in {out}")
            return known
        say(_told(material))
        name, found = recipe.algorithm, settle(material.trajectories)
        log_rewards(run, name, found)
        counts: dict[str, JsonValue] = {"kind": "rollouts", "name": name}
        counts |= {"counts": count_run(found).model_dump(mode="json"), "refused": dict(material.refused)}
        if counts not in run.metrics():
            run.log_metrics(counts)
        alarms = Alarms(run, recipe.diagnose, recipe.alarms, go_on=go_on)
        alarm = alarms.steps(name, imitation=name not in ALGORITHMS)
        with logging_to(loggers, out, f"{out.name}-{name}", config) as log:

            def on_report(number: int, report: StepReport) -> None:
                log(number, report)
                alarm(number, report)

            report = _made(recipe, material, run, on_report)
        run.log_metrics({"kind": "update", "name": name, "report": report.model_dump(mode="json")})
        broken = alarms.at_the_end().checklist.first
        if broken is not None:
            say(f"  Alarm: {broken.check}: {broken.evidence}. {broken.action}")
        return report
    finally:
        run.close()


def _made(recipe: TrainRecipe, material: "Material", run: "RunDirectory", on_report: OnReport) -> UpdateReport:
    from patchgym.cli.updating import watched_update

    settings, checkpoints = recipe.settings, run.path / "checkpoints"
    state = run.path / "updates" / recipe.algorithm
    with watched_update(f"Update: {recipe.algorithm}") as on_step:
        if isinstance(settings, PolicyGradientSettings):
            return grpo(
                material.trajectories,
                start=recipe.start,
                out=checkpoints,
                settings=settings,
                trained_on=material.keys,
                trees=material.trees,
                key_files={name: task.key_files for name, task in material.tasks.items()},
                on_step=on_step,
                on_report=on_report,
                state=state,
            )
        return sft(
            material.trajectories,
            start=recipe.start,
            out=checkpoints,
            settings=settings,
            trained_on=material.keys,
            on_step=on_step,
            on_report=on_report,
            state=state,
        )


def _told(material: "Material") -> str:
    """What is trained on, in a line."""
    from patchgym.rollout import count_run

    counts = count_run(material.trajectories)
    steps = f"{counts.steps / counts.trajectories:.1f} steps each" if counts.trajectories else "no steps"
    valid = counts.valid_action_rate
    invalid = f", {1 - valid:.1%} of actions unreadable" if valid is not None else ""
    mean = f", mean reward {counts.mean_reward:.3f}" if counts.mean_reward is not None else ""
    refused = ", ".join(f"{count} {reason}" for reason, count in sorted(material.refused.items()))
    return f"{counts.trajectories} trajectories of {counts.tasks} tasks, {steps}{invalid}{mean}" + (
        f"; not accepted: {refused}" if refused else ""
    )


def _kept(run: "RunDirectory", name: str) -> UpdateReport | None:
    for row in run.metrics():
        if row.get("kind") == "update" and row.get("name") == name:
            report = UpdateReport.model_validate(row["report"])
            if report.version is not None and not (run.path / "checkpoints" / report.version).is_dir():
                raise DataError(
                    f"Checkpoint {report.version} is missing from {run.path}",
                    why="The run says that this update published it.",
                    mend="Train again in another --out.",
                )
            return report
    return None


def _fit_value(recipe: TrainRecipe, out: Path, as_json: bool) -> None:
    """A value model of the recipe's runs, as ``patchgym value fit`` makes it of their training tasks."""
    from patchgym.cli.value.fit import command as fit

    if recipe.phases:
        raise UsageError("A value model is fitted on whole runs", mend="Remove phases from the recipe.")
    overrides = tuple(f"{key}={json.dumps(value)}" for key, value in recipe.value.items())
    out.mkdir(parents=True, exist_ok=True)
    click.get_current_context().invoke(
        fit,
        paths=tuple(map(Path, recipe.runs)),
        out=out / "value.json",
        head=None,
        split="train",
        overrides=overrides,
        as_json=as_json,
    )
