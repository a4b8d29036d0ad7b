"""``patchgym loop``: the whole closed loop, and what it says at the end."""

import asyncio
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from patchgym.cli.closed_loop import BASE, FINAL, WARM, ClosedLoop, LoopReport
from patchgym.cli.console import number, say, show_json, show_line, show_table
from patchgym.cli.diagnose import show_checklist
from patchgym.cli.eval import show_eval
from patchgym.cli.recipe import LoopRecipe
from patchgym.cli.stages import goes_on, show_gate, show_plan, upto_of
from patchgym.cli.tasks.build import build_watched
from patchgym.cli.updating import describe
from patchgym.cli.workshop import check_sandbox, make_manifest, opened_run, sandbox_options, sandboxes
from patchgym.config import load_recipe
from patchgym.content import cache_root
from patchgym.errors import ConfigError, DataError, UsageError
from patchgym.grading import GRADER_VERSION
from patchgym.policy.models import known_models
from patchgym.records import Task
from patchgym.rollout import LocalSource, PolicyOptions, ServerSource, TrainableSource
from patchgym.tasks import TaskSet, TaskSetRecipe
from patchgym.tasks.overlap.fingerprints import fingerprint_tasks
from patchgym.tasks.overlap.refuse import refuse_overlap

_BANDS = ((0.0, 0.02, "0"), (0.02, 0.3, "<0.3"), (0.3, 0.9, "<0.9"), (0.9, 1.01, "1"))
_FEW_HELD_OUT = 10  # under as many, no difference can show
_NAMES = {BASE: "base model", WARM: "after warm start", FINAL: "after RL"}


@click.command()
@click.argument("recipe", default="default")
@click.option("--out", type=click.Path(path_type=Path), help="The run directory; an old one is resumed. [runs/RECIPE]")
@click.option("--tasks", "taskset", type=click.Path(path_type=Path), help="Use this task set; do not build one.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the recipe.")
@click.option("--stage", type=click.IntRange(1), metavar="N", help="Go up to this stage of the recipe, and no further.")
@click.option("--yes", is_flag=True, help="Go on with the next stage without asking.")
@click.option("--go-on", is_flag=True, help="Go on past what the run has found broken so far.")
@click.option("--dry-run", is_flag=True, help="Only check the recipe and show what it would do.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@sandbox_options
def command(
    recipe: str,
    out: Path | None,
    taskset: Path | None,
    overrides: tuple[str, ...],
    stage: int | None,
    yes: bool,
    go_on: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run the whole closed loop. RECIPE is an embedded recipe's name or a .toml file.

    An interrupted loop goes on with the same command. A recipe with stages stops after each one at a gate: it never
    passes one that finds something broken, unless --go-on says so.
    """
    settings = load_recipe(LoopRecipe, recipe, overrides)
    upto = upto_of(settings, stage)
    if dry_run:
        show_plan(settings, recipe)
        return
    start = _trained(settings)
    where = out or Path("runs") / Path(recipe).stem
    given = TaskSet.load(taskset) if taskset is not None else None
    if given is None:
        _must_name_tasks(settings.tasks, recipe)
    check_sandbox()
    source = _opened(settings, start)
    try:
        asyncio.run(source.check())
        tasks = given or TaskSet.load(_built(settings.tasks))
        train, heldout = _sides(tasks, settings.train_on_benchmarks)
        if not train or not heldout:
            why = f"It has {len(train)} and {len(heldout)}."
            raise DataError(f"{tasks.path} needs training and held-out tasks", why=why)
        refuse_overlap(fingerprint_tasks(train, tasks.objects), fingerprint_tasks(heldout, tasks.objects))
        manifest = make_manifest("loop", settings.config(), [*train, *heldout], settings.seed)
        with opened_run(where, manifest, tasks.tasks, tasks) as run, sandboxes(run.objects) as factory:
            for problem in run.problems:
                say(f"  {problem}")
            loop = ClosedLoop(settings, run, factory, source, start, train, heldout, go_on=go_on)
            report = _staged(loop, tasks, upto, stage, yes, as_json) if settings.stages else loop.go(tasks.manifest)
            run.write_report("report.json", report.model_dump_json(indent=1))
    finally:
        asyncio.run(source.close())
    if as_json:
        show_json(report)
    else:
        show_report(report, staged=bool(settings.stages))
    sys.exit(0 if report.checklist.sound and (report.passed or not settings.alarms.pause) else 1)


def _staged(loop: ClosedLoop, tasks: TaskSet, upto: int, asked_for: int | None, yes: bool, as_json: bool) -> LoopReport:
    """The stages up to the one that is asked for, with a gate after each."""
    gate, count = None, loop.stages
    for done in range(1, upto + 1):
        gate = loop.stage(done)
        if not as_json:
            show_gate(gate, done, count)
        if not goes_on(done, count, asked_for=asked_for, yes=yes):
            break
    return loop.report(tasks.manifest, gate)


def _must_name_tasks(recipe: TaskSetRecipe, name: str) -> None:
    sources = (recipe.train, recipe.pairs, recipe.repositories, recipe.histories, recipe.logs)
    if not any(sources):
        raise UsageError(
            f"Recipe {name} names no tasks",
            why="It is about how to train, on whatever task set you have.",
            mend="Name one with --tasks SET; patchgym tasks build --recipe pypi500 --out SET makes one of 500 tasks.",
        )


def _trained(recipe: LoopRecipe) -> str:
    """The model on this machine that the loop trains.

    Raises:
        ConfigError: the policy is none that can be trained, or there is nothing here to train for it.
    """
    kind, _, model = recipe.policy.partition(":")
    if kind not in ("local", "vllm") or not model:
        raise ConfigError(
            f"The loop trains its policy, and cannot train {recipe.policy!r}", mend="Use local:PATH or vllm:MODEL."
        )
    if kind == "local" and recipe.start is not None:
        raise ConfigError(
            f"The recipe starts from {recipe.start} and samples {recipe.policy}", mend="Remove start: it is the policy."
        )
    start = recipe.start or model
    if start not in known_models() and not Path(start).is_dir():
        raise ConfigError(
            f"The loop trains {start} here, and it is not on this machine",
            why=f"The server of {recipe.policy} only samples.",
            mend="Say start = DIR in the recipe, with the model that the server has.",
        )
    return start


def _opened(recipe: LoopRecipe, start: str) -> TrainableSource:
    """What samples the policy; it takes a new version after every update."""
    options = PolicyOptions(batch=recipe.rollout.concurrency, base_url=recipe.base_url)
    kind, _, model = recipe.policy.partition(":")
    if kind == "vllm":
        # What is known of a model here tells whether the server has the weights that are trained.
        return ServerSource(recipe.policy, start if Path(start).is_dir() else model, options)
    say(f"Load {model} (the first time it is fetched and dequantised, which takes a minute)")
    return LocalSource(recipe.policy, model, options)


def _sides(tasks: TaskSet, train_on_benchmarks: bool) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Training and held-out tasks. Tasks of benchmarks are trained on only where the recipe says so."""
    benchmarks = {task.id for task in tasks.tasks if task.source.kind == "benchmark"}
    if train_on_benchmarks:
        train = tuple(task for task in tasks.tasks if task.split == "train" or task.id in benchmarks)
        return train, tuple(task for task in tasks.tasks if task not in train)
    marked = [task.id for task in tasks.split("train") if task.id in benchmarks]
    if marked:
        raise DataError(
            f"{tasks.path} has {len(marked)} benchmark tasks to train on, the first {marked[0]}",
            why="A policy that was trained on a benchmark can no longer be measured by it.",
            mend="Hold them out, or say train_on_benchmarks = true in the recipe; the run's manifest records it.",
        )
    return tasks.split("train"), tasks.split("heldout")


def _built(recipe: TaskSetRecipe) -> Path:
    """The recipe's task set in the cache, built where it is not there yet."""
    key = json.dumps([recipe.model_dump(mode="json"), GRADER_VERSION, Task.VERSION], sort_keys=True)
    path = cache_root() / "tasksets" / f"{recipe.name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    if path.is_dir():
        say(f"Task set: {path} (built and proved before)")
    else:
        build_watched(recipe, path)
    return path


def show_report(report: LoopReport, *, staged: bool = False) -> None:
    """The report as tables, the verdict, and one command to go on with; of a staged loop, whose gates were shown, the
    tables alone."""
    dropped = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in report.dropped.items())
    show_line(
        f"\nTasks: {report.tasks['train']} to train on, {report.tasks['heldout']} held out, proved out of "
        f"{report.funnel.get('candidates', 0)} candidates" + (f" (dropped: {dropped})" if dropped else "") + "\n"
    )
    if report.evaluations:
        show_eval({_NAMES.get(name, f"after {name[5:]}"): found for name, found in report.evaluations.items()})
    _show_rounds(report)
    for name, update in report.updates.items():
        show_line(f"\nUpdate {name}. {describe(update)}.")
    if not staged:
        show_line()
        show_checklist(report.checklist, "this")
    show_line(f"\nThe run is in {report.run} (report.json holds these figures; {report.seconds:.0f} s this time).")
    if not staged:
        show_line(f"Next: {_next_command(report)}")


def _show_rounds(report: LoopReport) -> None:
    columns = ("round", "runs", "solved", "reward", *(label for _, _, label in _BANDS), "valid", "lost")
    rows = [
        (
            name,
            str(counts.trajectories),
            str(counts.solved),
            number(counts.mean_reward, 3),
            *_banded(report.rewards[name]),
            number(counts.valid_action_rate),
            str(counts.infra_error),
        )
        for name, counts in report.rounds.items()
    ]
    if rows:
        show_table("\nRollouts and rewards", columns, rows)


def _banded(rewards: Sequence[float]) -> list[str]:
    return [str(sum(low <= reward < high for reward in rewards)) for low, high, _ in _BANDS]


def _next_command(report: LoopReport) -> str:
    if not report.checklist.sound:
        return "patchgym doctor"
    if report.tasks["heldout"] < _FEW_HELD_OUT:
        return "patchgym loop longer"
    return "patchgym tasks build --recipe pypi500 --out pypi500"
