"""``patchgym diagnose``: whether the rewards of a run can be trained on."""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchgym.cli.console import show_json, show_line, show_table, stage
from patchgym.cli.score import opened_for_reading, show_log
from patchgym.cli.workshop import check_sandbox, sandbox_options, sandboxes
from patchgym.diagnose.regrade import TIMES, graded_again, to_regrade
from patchgym.diagnose.reward import RewardJudgement, judge_rewards
from patchgym.diagnose.variance import Grading
from patchgym.errors import DataError, UsageError
from patchgym.records import Trajectory
from patchgym.reward import to_screen

if TYPE_CHECKING:
    from patchgym.store import RunDirectory


@click.command()
@click.argument("path", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--reward", "rewards", is_flag=True, help="Check the rewards before training on them.")
@click.option(
    "--regrade", default=0, type=click.IntRange(0), metavar="N", help="Grade up to N of its patches twice more."
)
@click.option("--json", "as_json", is_flag=True, help="Print the judgement as JSON.")
@sandbox_options
def command(path: Path, rewards: bool, regrade: int, as_json: bool) -> None:
    """Check the rewards of a run, with evidence, thresholds and the next thing to do.

    The verdict names the first cause. Exit code 1 means that an alarm is up.
    """
    if not rewards:
        raise UsageError("Say what to check", mend=f"patchgym diagnose --reward {path}")
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
            finding.level.value,
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
