"""``patchgym search``: search trees of a policy on a task set."""

import asyncio
import json
from pathlib import Path

import click

from patchgym.cli.asked import Asked, policy_options
from patchgym.cli.console import show_json, show_line, stage
from patchgym.cli.rollout import show_counts, with_collector
from patchgym.cli.workshop import chosen_tasks, log_rewards
from patchgym.config import assigned
from patchgym.records import Tree, outcome
from patchgym.reward import settle
from patchgym.reward.value.opened import opened_value
from patchgym.rollout import Collector, Phase, PolicySource, RunCounts, count_run
from patchgym.rollout.strategies import STRATEGIES, SearchSettings
from patchgym.store import RunDirectory
from patchgym.tasks import TaskSet

PHASE = "search"


@click.command()
@click.argument("taskset", type=click.Path(path_type=Path))
@click.option(
    "--strategy",
    type=click.Choice(list(STRATEGIES)),
    default="best_first",
    show_default=True,
    help="What goes on next.",
)
@click.option("--branches", default=3, show_default=True, type=click.IntRange(1), help="Answers at one place.")
@click.option("--nodes", default=64, show_default=True, type=click.IntRange(0), help="Steps of one tree (0: no limit).")
@click.option(
    "--value",
    default="visible_tests",
    show_default=True,
    metavar="HOW",
    help="How a place is valued: visible_tests, credit, model:PATH, none.",
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="tokens, width, value, margin, merge, ...")
@policy_options(split="all", temperature=1.0)
def command(
    taskset: Path, strategy: str, branches: int, nodes: int, value: str, overrides: tuple[str, ...], asked: Asked
) -> None:
    """Search: at every place several answers, each in a fork of the sandbox, and on from where it looks best.

    A sample is a tree. Every path that comes to its end is graded and is a trajectory of the run; patchgym show RUN
    TREE draws the tree.
    """
    tasks = TaskSet.load(taskset)
    chosen = chosen_tasks(tasks, asked.split, asked.ids)
    given = [f'strategy="{strategy}"', f"branches={branches}", f"nodes={nodes}", f"value={json.dumps(value)}"]
    settings = _frozen(assigned(SearchSettings, [*given, *overrides], "--set"), asked.out)

    def work(collector: Collector, run: RunDirectory, source: PolicySource) -> RunCounts:
        total = len(chosen) * asked.samples
        with stage("Search", total) as shown:
            solved: list[bool] = []

            def final(tree: Tree) -> None:
                solved.append(any(map(outcome.solved, tree.trajectories())))
                shown.update(len(solved), total, f"{sum(solved)} of {len(solved)} trees hold a solution")

            asyncio.run(collector.search(Phase(PHASE, chosen, asked.samples), source, asked.settings, settings, final))
        found = settle(run.phase(PHASE))
        log_rewards(run, PHASE, found)
        return count_run(found)

    counts = with_collector("search", asked.config(search=settings.model_dump(mode="json")), tasks, chosen, asked, work)
    if asked.as_json:
        show_json(counts)
    else:
        show_counts(counts)
        show_line(f"\nThe run is in {asked.out}. Next: patchgym show {asked.out}")


def _frozen(settings: SearchSettings, out: Path) -> SearchSettings:
    """The settings with the hash of the value model that they name. Where it was named before, by them or by the run
    that goes on, it must be the same.

    Raises:
        UsageError, DataError, PrerequisiteError: there is no such value function, or its hash is another.
    """
    if not settings.by_steps:
        return settings
    named = settings.value_hash
    if not named and (out / "run.json").is_file():
        kept = RunDirectory.read(out).manifest.config.get("search")
        if isinstance(kept, dict) and kept.get("value") == settings.value:
            named = str(kept.get("value_hash") or "")
    return settings.model_copy(update={"value_hash": opened_value(settings.value, named)[1]})
