"""``patchgym tasks build``: make tasks and prove each one."""

import asyncio
from pathlib import Path

import click

from patchgym.cli.console import show_json, show_line, show_table, stage
from patchgym.cli.executing import asked_afar, executor_options
from patchgym.cli.recipe import LoopRecipe
from patchgym.cli.workshop import check_sandbox, new_sandboxes, sandbox_options
from patchgym.config import load_recipe, validated
from patchgym.content import ObjectStore
from patchgym.errors import UsageError
from patchgym.records import TaskSetManifest
from patchgym.tasks import TaskSetRecipe
from patchgym.tasks.funnel import meaning_of


@click.command()
@click.option("--recipe", help="An embedded recipe's name, or a .toml file. [default: default]")
@click.option("--git", "repositories", multiple=True, metavar="PATH_OR_URL", help="Mine this repository's commits.")
@click.option("--issues", type=click.Path(path_type=Path), help="A JSONL file of that repository's issues.")
@click.option("--pypi", "histories", multiple=True, metavar="NAME[==V]", help="Mine this package's releases.")
@click.option("--log", "logs", multiple=True, metavar="FILE", help="Make tasks of logged agent sessions.")
@click.option("--repos", "clones", default="", metavar="DIR", help="Where the repositories of --log are cloned.")
@click.option("--plant", multiple=True, metavar="PLACE", help="Plant bugs in this NAME==V, or in this PATH or URL.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the recipe.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Where the task set is written.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
@sandbox_options
@executor_options
def command(
    recipe: str | None,
    repositories: tuple[str, ...],
    issues: Path | None,
    histories: tuple[str, ...],
    logs: tuple[str, ...],
    clones: str,
    plant: tuple[str, ...],
    overrides: tuple[str, ...],
    out: Path,
    as_json: bool,
) -> None:
    """Make tasks and prove each one in the sandbox.

    Of a recipe, or of the sources named here alone. A build that was interrupted goes on with the same command.
    """
    if logs and not clones:
        raise UsageError("--log needs --repos", mend="Name the folder that holds clones of the sessions' repositories.")
    if issues is not None and len(repositories) != 1:
        raise UsageError("--issues are of one --git", mend="Name more of them in a recipe: [tasks.issues].")
    named: dict[str, object] = {"repositories": repositories, "histories": histories, "logs": logs, "clones": clones}
    named |= {"train": plant, "issues": {repositories[0]: str(issues)} if issues is not None else {}}
    start = recipe or ("mine" if any(named.values()) else "default")
    data = load_recipe(LoopRecipe, start, overrides).model_dump()
    data["tasks"] |= {key: value for key, value in named.items() if value}
    manifest = build_watched(validated(LoopRecipe, data, start).tasks, out)
    if as_json:
        show_json(manifest)
    else:
        show_funnel(manifest, out)
        show_line(f"\nWritten to {out}. Next: patchgym tasks audit {out}")


def build_watched(recipe: TaskSetRecipe, out: Path) -> TaskSetManifest:
    """Build a task set while a person watches.

    Raises:
        PatchgymError: as ``patchgym.tasks.build.build_task_set``.
    """
    from patchgym.cli.bench import bench_executors, cluster_asked_for
    from patchgym.sandbox import ClosingFactory
    from patchgym.tasks.build import build_task_set

    if asked_afar() is None:
        check_sandbox()
    made: list[ClosingFactory] = []
    try:
        with cluster_asked_for() as cluster, stage("Build and prove tasks") as shown:

            def factory_for(objects: ObjectStore) -> ClosingFactory:
                made.append(new_sandboxes(objects))
                return made[-1]

            def progress(part: str, done: int, total: int) -> None:
                shown.update(done, total, "fetching sources" if part == "sources" else f"{done} of {total} proved")

            async def build() -> TaskSetManifest:
                async with bench_executors(cluster) as executor_for:
                    return await build_task_set(
                        recipe, out, factory_for=factory_for, on_progress=progress, executor_for=executor_for
                    )

            return asyncio.run(build())
    finally:
        for factory in made:
            factory.close()


def show_funnel(manifest: TaskSetManifest, path: Path) -> None:
    """What became of every candidate, stage by stage, and what a task cost."""
    total = max(manifest.funnel.get("candidates", 0), 1)
    stages = [(name.replace("_", " "), str(count), f"{count / total:.0%}") for name, count in manifest.funnel.items()]
    show_table("Candidates that got through each stage", ("stage", "count", "share"), stages)
    if manifest.dropped or manifest.refused:
        show_table(
            "Why the others did not",
            ("reason", "count", "meaning"),
            [
                (name.replace("_", " "), str(count), meaning_of(name))
                for kind in (manifest.dropped, manifest.refused)
                for name, count in kind.items()
            ],
        )
    written = max(manifest.funnel.get("written", 0), 1)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    for reason, said in manifest.examples.items():
        show_line(f"{reason.replace('_', ' ')}, for example {said}")
    flaky = sum(len(tests) for tests in manifest.flaky.values())
    show_line(
        f"{manifest.seconds:.0f} s, {manifest.seconds / written:.1f} s and {size / written / 1000:.0f} kB a task"
        + (f"; {flaky} flaky tests decide nothing" if flaky else "")
    )
