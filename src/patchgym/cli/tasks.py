"""``patchgym tasks``: build task sets and look at them."""

import asyncio
from pathlib import Path

import click

from patchgym.cli.console import say, show_json, show_line, show_table, stage
from patchgym.cli.recipe import LoopRecipe
from patchgym.config import load_recipe
from patchgym.records import Task, TaskSetManifest
from patchgym.tasks import TaskSet, TaskSetRecipe


@click.group()
def command() -> None:
    """Build task sets and look at them."""


@command.command()
@click.option("--recipe", default="default", show_default=True, help="An embedded recipe's name, or a .toml file.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the recipe.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Where the task set is written.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def build(recipe: str, overrides: tuple[str, ...], out: Path, as_json: bool) -> None:
    """Make tasks from pinned packages and prove each one in the sandbox."""
    manifest = build_watched(load_recipe(LoopRecipe, recipe, overrides).tasks, out)
    if as_json:
        show_json(manifest)
    else:
        show_funnel(manifest)
        show_line(f"\nWritten to {out}. Next: patchgym rollout {out} --policy gold --out runs/gold")


@command.command()
@click.argument("taskset", type=click.Path(path_type=Path))
@click.argument("task_id", required=False)
@click.option("--whole", is_flag=True, help="With TASK_ID: also the hidden tests, the gold patch and the proof.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def show(taskset: Path, task_id: str | None, whole: bool, as_json: bool) -> None:
    """List the tasks of a set, or show one as the agent sees it."""
    found = TaskSet.load(taskset)
    if task_id is not None:
        task = found.task(task_id)
        if as_json:
            show_json(task if whole else task.view())
        else:
            _show_task(task, whole)
    elif as_json:
        show_json([task.view().model_dump(mode="json") for task in found.tasks])
    else:
        rows = [
            (
                task.id,
                task.split,
                task.source.kind,
                f"{len(task.view().failing_tests)}+{len(task.tests.hidden)}",
                str(len(task.tests.pass_to_pass)),
                str(task.scope.lines),
                "yes" if task.validation is not None and task.validation.proved else "no",
            )
            for task in found.tasks
        ]
        show_table(taskset.name, ("task", "split", "kind", "fail+hidden", "pass", "lines", "proved"), rows)


def build_watched(recipe: TaskSetRecipe, out: Path) -> TaskSetManifest:
    """Build a task set while a person watches.

    Raises:
        PatchgymError: as ``patchgym.tasks.build.build_task_set``.
    """
    from patchgym.sandbox import NamespaceSandboxes
    from patchgym.tasks.build import build_task_set

    made: list[NamespaceSandboxes] = []
    try:
        with stage("Build and prove tasks") as shown:

            def factory_for(objects: object) -> NamespaceSandboxes:
                from patchgym.content import ObjectStore

                assert isinstance(objects, ObjectStore)
                made.append(NamespaceSandboxes(objects))
                return made[-1]

            def progress(part: str, done: int, total: int) -> None:
                shown.update(done, total, "fetching sources" if part == "sources" else f"{done} of {total} proved")

            return asyncio.run(build_task_set(recipe, out, factory_for=factory_for, on_progress=progress))
    finally:
        for factory in made:
            factory.close()


def show_funnel(manifest: TaskSetManifest) -> None:
    """The funnel as a table: what became of every candidate."""
    rows = [(name.replace("_", " "), str(count)) for name, count in _ordered(manifest.funnel)]
    show_table("What became of the candidates", ("outcome", "count"), rows)


def _ordered(funnel: dict[str, int]) -> list[tuple[str, int]]:
    first = [name for name in ("candidates", "written", "spare") if name in funnel]
    rest = sorted(name for name in funnel if name not in first)
    return [(name, funnel[name]) for name in [*first, *rest]]


def _show_task(task: Task, whole: bool) -> None:
    view = task.view()
    show_line(f"{task.id} ({task.source.repo} {task.source.version or ''}, {task.split})\n\n{view.instruction}\n")
    show_line("Failing tests that the agent sees:\n" + "\n".join(f"  {test}" for test in view.failing_tests))
    if not whole:
        say("The agent sees no more than this. --whole shows the rest.")
        return
    show_line("\nHidden failing tests:\n" + "\n".join(f"  {test}" for test in task.tests.hidden))
    show_line(f"\n{len(task.tests.pass_to_pass)} tests must stay passing.\nOrigin: {task.source.change}")
    proof = task.validation
    if proof is not None:
        show_line(
            f"Proof: base failed {proof.base_failed} of {proof.runs}, gold passed {proof.gold_passed} of {proof.runs}"
        )
    show_line(f"\nGold patch:\n{task.gold_patch}")
