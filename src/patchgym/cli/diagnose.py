"""``patchgym diagnose``: should this run go on?"""

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from patchgym.cli.console import show_json, show_line, show_table, stage
from patchgym.cli.score import opened_for_reading, show_log
from patchgym.cli.workshop import check_sandbox, sandbox_options, sandboxes
from patchgym.config import Settings, filled, load_recipe
from patchgym.diagnose import DiagnoseSettings, diagnose, read_facts
from patchgym.diagnose.regrade import TIMES, graded_again, to_regrade
from patchgym.diagnose.reward import RewardJudgement, judge_rewards
from patchgym.diagnose.variance import Grading
from patchgym.errors import DataError, UsageError
from patchgym.records import Checklist, Status, Trajectory
from patchgym.reward import to_screen

if TYPE_CHECKING:
    from patchgym.store import RunDirectory


class _Thresholds(Settings):
    """What a command line can change."""

    diagnose: DiagnoseSettings = DiagnoseSettings()


@click.command()
@click.argument("path", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--against", type=click.Path(path_type=Path), metavar="RUN2", help="An earlier run to compare with.")
@click.option("--all", "whole", is_flag=True, help="Go on past what is broken.")
@click.option("--reward", "rewards", is_flag=True, help="Only check the rewards, before training on them.")
@click.option(
    "--regrade", default=0, type=click.IntRange(0), metavar="N", help="Grade up to N of its patches twice more."
)
@click.option("--recipe", metavar="R", help="Thresholds of a recipe. [those that the run was watched with]")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Such as diagnose.few=20.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
@sandbox_options
def command(
    path: Path,
    against: Path | None,
    whole: bool,
    rewards: bool,
    regrade: int,
    recipe: str | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Should this run go on? One checklist, in the order in which causes hide each other.

    It stops at the first broken link and says how to mend it. Exit code 1 means that something is broken. What a run
    does not hold is unknown, not broken. It reads run directories alone, of any kind, finished or not.
    """
    if rewards:
        _rewards_only(path, regrade, as_json)
    from patchgym.store import RunDirectory

    run = RunDirectory.read(path)
    settings = _thresholds(run, recipe, overrides)
    other = read_facts(RunDirectory.read(against)) if against is not None else None
    light = [one.model_copy(update={"steps": ()}) for one in run.trajectories] if regrade else []
    facts = read_facts(run, _graded_again(run, light, regrade) if regrade else (), other)
    found = diagnose(facts, settings, whole=whole)
    if as_json:
        show_json(found)
    else:
        show_checklist(found, path.name)
    sys.exit(1 if found.first is not None else 0)


def _rewards_only(path: Path, regrade: int, as_json: bool) -> NoReturn:
    run = opened_for_reading(path)
    light = [one.model_copy(update={"steps": ()}) for one in run.trajectories]
    if not any(one.reward is not None and one.reward.value is not None for one in light):
        raise DataError(
            f"The run at {path} has no rewards",
            why=f"None of its {len(light)} trajectories is scored.",
            mend=f"Look why: patchgym show {path}. Imported logs have none; patchgym rollout makes graded ones.",
        )
    found = judge_rewards(light, _graded_again(run, light, regrade) if regrade else ())
    if as_json:
        show_json({**found.model_dump(mode="json"), "to_screen": list(to_screen(light))})
    else:
        _show(found, len(to_screen(light)), path)
    sys.exit(1 if found.alarm else 0)


def _thresholds(run: "RunDirectory", recipe: str | None, overrides: Sequence[str]) -> DiagnoseSettings:
    """Those of a recipe, else those that the run was watched with, else the usual ones; what is overridden wins."""
    for override in overrides:
        if not override.startswith("diagnose."):
            raise UsageError(f"{override} is no threshold of a check", mend=f"Write diagnose.{override}, say.")
    if recipe is not None:
        from patchgym.cli.recipe import LoopRecipe

        return load_recipe(LoopRecipe, recipe, overrides).diagnose
    kept = run.gates()
    data: dict[str, Any] = {"diagnose": dict(kept[-1].checklist.thresholds)} if kept else {}
    return filled(_Thresholds, data, overrides, f"of {run.path}").diagnose


def show_checklist(found: Checklist, title: str) -> None:
    """A checklist as a table of 80 columns, what is broken with its threshold, and the verdict."""
    rows = [
        (
            str(one.step),
            one.check,
            one.status.value,
            "\n".join(filter(None, (one.evidence, f"-> {one.action}" if one.action else ""))),
        )
        for one in found.findings
    ]
    against = f" against {found.against}" if found.against else ""
    show_table(f"Should {title} go on?{against}", ("", "check", "", "evidence"), rows)
    for one in found.findings:
        if one.status is Status.BROKEN:
            show_line(
                f"{one.check}: held against {one.threshold} ({one.source}); confidence {one.confidence}"
                + (f"; see {', '.join(one.named)}" if one.named else "")
            )
    if found.left:
        show_line(f"Not looked at ({len(found.left)}; --all does): {', '.join(found.left)}")
    show_line(found.verdict)


def _graded_again(run: "RunDirectory", light: list[Trajectory], count: int) -> list[Grading]:
    """Further gradings of some patches. The run itself is not written to; what infrastructure failed at is left out."""
    from patchgym.content import ObjectStore
    from patchgym.grading import Grader
    from patchgym.sandbox.environments import build_environment

    tasks = run.tasks()
    chosen = to_regrade([one for one in light if one.task_id in tasks], count)
    if not chosen:
        raise UsageError(
            f"Nothing of {run.path} can be graded again", why="It does not hold the tasks of graded patches."
        )
    check_sandbox()
    total = len(chosen) * TIMES
    with tempfile.TemporaryDirectory(prefix="patchgym-diagnose-") as scratch:
        objects = ObjectStore(Path(scratch), run.objects)
        with sandboxes(objects) as factory, stage("Grade again", total) as shown:
            grader = Grader(factory, objects, build_environment)
            return asyncio.run(graded_again(grader, tasks, chosen, lambda done: shown.update(done, total)))


def _show(found: RewardJudgement, screened: int, path: Path) -> None:
    rows = [
        (
            finding.check,
            finding.status.value,
            "\n".join(filter(None, (finding.evidence, finding.action))),
            finding.threshold,
        )
        for finding in found.findings
    ]
    show_table("Can these rewards be trained on?", ("check", "", "evidence", "threshold"), rows)
    show_log(found.log)
    if screened:
        show_line(f"{screened} attempts are for a person to look at: patchgym score {path} lists them.")
    show_line(f"\n{found.verdict}")
