"""``patchgym tasks build``: make tasks and prove each one."""

import asyncio
from pathlib import Path

import click

from patchgym.cli.console import show_json, show_line, show_table, stage
from patchgym.cli.recipe import LoopRecipe
from patchgym.config import load_recipe
from patchgym.records import TaskSetManifest
from patchgym.tasks import TaskSetRecipe


@click.command()
@click.option("--recipe", default="default", show_default=True, help="An embedded recipe's name, or a .toml file.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the recipe.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Where the task set is written.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def command(recipe: str, overrides: tuple[str, ...], out: Path, as_json: bool) -> None:
    """Make tasks from pinned packages and prove each one in the sandbox."""
    manifest = build_watched(load_recipe(LoopRecipe, recipe, overrides).tasks, out)
    if as_json:
        show_json(manifest)
    else:
        show_funnel(manifest)
        show_line(f"\nWritten to {out}. Next: patchgym rollout {out} --policy gold --out runs/gold")


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
