"""``patchgym score``: the rewards of a run, computed again under any recipe."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import JsonValue

from patchgym.cli.console import number, say, show_json, show_line, show_table, stage
from patchgym.config import Settings, filled, load_recipe
from patchgym.errors import DataError, UsageError
from patchgym.records import Reward, RunManifest, Task, Trajectory
from patchgym.reward import Comparison, RewardLog, RewardSettings, compared, log_of, rescored, settle, to_screen

if TYPE_CHECKING:
    from patchgym.store import RunDirectory

_SCREENED = 20


class _Scoring(Settings):
    """What a command line can change."""

    reward: RewardSettings = RewardSettings()


@click.command()
@click.argument("path", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--recipe", metavar="R", help="An embedded recipe's name, or a .toml file. [the run's own rewards]")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Such as reward.half=0.4.")
@click.option("--out", type=click.Path(path_type=Path), metavar="RUN2", help="Write a run with the new rewards.")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison and the log of the terms as JSON.")
def command(path: Path, recipe: str | None, overrides: tuple[str, ...], out: Path | None, as_json: bool) -> None:
    """Compute every reward of a run again, from what the run recorded: nothing is run or graded again.

    Without --recipe the run's own settings apply, and nothing changes. Without --out it only shows what would change.
    """
    run = opened_for_reading(path)
    settings = _settings(run, recipe, overrides)
    before, after = _both(run, settings)
    comparison = compared(_rewards(before), _rewards(after))
    log, screened = log_of(after), to_screen(after)
    if out is not None:
        _write(run, out, settings, log_of_phases(after))
    if as_json:
        show_json(
            {
                **comparison.model_dump(mode="json"),
                "reward": settings.model_dump(mode="json"),
                "log": log.model_dump(mode="json"),
                "to_screen": list(screened),
                "out": str(out) if out is not None else None,
            }
        )
        return
    _show(comparison, screened)
    show_log(log)
    written = f"Written to {out}. Next: patchgym diagnose --reward {out}" if out else "Nothing was written: see --out."
    show_line(f"\n{written}")


def opened_for_reading(path: Path) -> "RunDirectory":
    """A finished run with trajectories.

    Raises:
        UsageError: there is none, or another process is writing to it.
        DataError: it is empty or damaged.
    """
    from patchgym.store import RunDirectory

    run = RunDirectory.read(path)
    if run.in_progress:
        raise UsageError(
            f"The run at {path} is still being written",
            why="Its groups are not whole, and rewards are settled in whole groups.",
            mend="Wait for it to end, or interrupt it; the same command goes on from there.",
        )
    if not run.ids:
        raise DataError(f"The run at {path} holds no trajectories", mend="Collect some: patchgym rollout --help")
    for problem in run.problems:
        say(f"  {problem}")
    return run


def recorded_settings(run: "RunDirectory") -> dict[str, Any]:
    """How the run was rewarded, as it recorded that; empty where it did not: then by the defaults."""
    found = run.manifest.config.get("reward")
    return dict(found) if isinstance(found, dict) else {}


def show_log(log: RewardLog) -> None:
    """What each term did, as a table."""
    rows = [
        (name, str(term.attempts), number(term.raw, 3), number(term.weighted, 4), _share(term.variance_share))
        for name, term in log.terms.items()
    ]
    if rows:
        show_table("\nTerms, within groups", ("term", "attempts", "raw", "weighted", "of variance"), rows)
    show_line(
        f"{log.scored} scored, {log.not_scored} not; {log.groups} groups, {log.zero_variance} without variance, "
        f"second layer applied in {log.applied}."
    )
    show_line(
        f"Mean advantage by shaping alone {number(log.shaping_advantage, 4)} (largest group "
        f"{number(log.shaping_advantage_max, 4)}), by the outcome alone {number(log.outcome_advantage, 4)}."
    )


def log_of_phases(trajectories: Sequence[Trajectory]) -> dict[str, RewardLog]:
    """The log of each phase."""
    phases: dict[str, list[Trajectory]] = {}
    for one in trajectories:
        phases.setdefault(one.phase, []).append(one)
    return {name: log_of(found) for name, found in phases.items()}


def _settings(run: "RunDirectory", recipe: str | None, overrides: Sequence[str]) -> RewardSettings:
    for override in overrides:
        if not override.startswith("reward."):
            raise UsageError(f"{override} is no setting of rewards", mend=f"Write reward.{override}, say.")
    if recipe is None:
        return filled(_Scoring, {"reward": recorded_settings(run)}, overrides, f"of {run.path}").reward
    from patchgym.cli.recipe import LoopRecipe

    return load_recipe(LoopRecipe, recipe, overrides).reward


def _both(run: "RunDirectory", settings: RewardSettings) -> tuple[list[Trajectory], list[Trajectory]]:
    """The trajectories without their steps, settled: as recorded, and with the rewards of ``settings``."""
    tasks = _tasks(run)
    before, after = [], []
    with stage("Score", len(run.ids)) as shown:
        for done, one in enumerate(run.trajectories, start=1):
            light = one.model_copy(update={"steps": ()})
            before.append(light)
            after.append(light.model_copy(update={"reward": _again(one, tasks, settings)}))
            shown.update(done)
    return settle(before), settle(after)


def _tasks(run: "RunDirectory") -> dict[str, Task]:
    tasks = run.tasks()
    if not tasks:
        raise DataError(
            f"The run at {run.path} does not hold its tasks",
            why="Rewards compare an attempt with its task: the size of its solution, its key files, its limits.",
            mend="Imported logs have none; collect a run with patchgym rollout.",
        )
    return tasks


def _again(one: Trajectory, tasks: dict[str, Task], settings: RewardSettings) -> Reward | None:
    """The reward of a trajectory under ``settings``; as it is where its task is not there."""
    return rescored(one, tasks[one.task_id], settings) if one.task_id in tasks else one.reward


def _rewards(trajectories: Sequence[Trajectory]) -> dict[str, Reward | None]:
    return {one.id: one.reward for one in trajectories}


def _write(run: "RunDirectory", out: Path, settings: RewardSettings, logs: dict[str, RewardLog]) -> None:
    """A copy of the run with the new rewards: trajectories, search trees, tasks, states and metrics."""
    from patchgym.store import RunDirectory
    from patchgym.store.copying import copy_objects, copy_task, copy_tree_objects
    from patchgym.store.whole import beside

    tasks = _tasks(run)
    config: dict[str, JsonValue] = {"of": run.manifest.id, "command": run.manifest.command}
    manifest = RunManifest(
        id=out.name,
        command="score",
        config={**config, "reward": settings.model_dump(mode="json")},
        versions={**run.manifest.versions, "patchgym": version("patchgym")},
        task_hashes=run.manifest.task_hashes,
        seed=run.manifest.seed,
        created_at=datetime.now(UTC),
    )
    with beside(out) as scratch:
        new = RunDirectory.open_for_writing(scratch / "run", manifest)
        try:
            for one in _single(run):
                copy_objects(one, run.objects, new.objects)
                new.append(one.model_copy(update={"reward": _again(one, tasks, settings)}))
            for tree in run.trees:
                copy_tree_objects(tree, run.objects, new.objects)
                rewards = {path.id: _again(path, tasks, settings) for path in tree.trajectories()}
                leaves = tuple(
                    leaf.model_copy(update={"reward": rewards.get(f"{tree.id}.{place}", leaf.reward)})
                    for place, leaf in enumerate(tree.leaves)
                )
                new.append_tree(tree.model_copy(update={"leaves": leaves}))
            for task in tasks.values():
                copy_task(task, run.objects, new.objects)
            new.keep_tasks(tasks.values())
            for row in run.metrics():
                if row.get("kind") != "reward":
                    new.log_metrics(row)
            for name, log in logs.items():
                new.log_metrics({"kind": "reward", "name": name, "log": log.model_dump(mode="json")})
        finally:
            new.close()
        (scratch / "run").rename(out)


def _single(run: "RunDirectory") -> Iterator[Trajectory]:
    return (one for one in run.trajectories if one.tree_id is None)


def _show(found: Comparison, screened: dict[str, str]) -> None:
    gates = dict.fromkeys([*found.gates_before, *found.gates_after])
    rows = [(gate, str(found.gates_before.get(gate, 0)), str(found.gates_after.get(gate, 0))) for gate in gates]
    rows += [("mean", number(found.mean_before, 4), number(found.mean_after, 4))]
    show_table(f"{found.changed} of {found.trajectories} rewards change", ("gate", "before", "after"), rows)
    moves = [(move.trajectory, number(move.before, 4), number(move.after, 4), move.why) for move in found.largest]
    if moves:
        show_table("\nThe largest moves", ("trajectory", "before", "after", "why"), moves)
    if screened:
        show_table("\nFor a person to look at", ("trajectory", "why"), list(screened.items())[:_SCREENED])


def _share(share: float | None) -> str:
    return f"{share:.1%}" if share is not None else "-"
