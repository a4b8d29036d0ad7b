"""What several commands need: sandboxes over a store, run manifests, watching a collection."""

import asyncio
import platform
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import JsonValue

from patchgym.cli.console import number, stage
from patchgym.content import ObjectStore
from patchgym.errors import UsageError
from patchgym.records import RunManifest, Task, Trajectory, Tree
from patchgym.reward import log_of, settle
from patchgym.rollout import Collector, Counting, Phase, PolicySource, RolloutSettings, RunCounts, count_run
from patchgym.rollout.strategies import SearchSettings
from patchgym.sandbox import ClosingFactory, SandboxKind, sandbox_kind
from patchgym.store import RunDirectory
from patchgym.store.copying import copy_task
from patchgym.tasks import TaskSet

_DEFAULT_KIND = "namespace"
_F = TypeVar("_F", bound=Callable[..., Any])


def sandbox_options(command: _F) -> _F:
    """``--sandbox`` and ``--unsafe`` of every command that runs code of tasks; ``sandboxes`` heeds them. One without
    isolation is refused where nobody said that this is wanted."""

    def remember(context: click.Context, parameter: click.Parameter, value: object) -> None:
        context.meta[f"patchgym.{parameter.name}"] = value
        isolated = parameter.name != "sandbox" or value == _DEFAULT_KIND or sandbox_kind(str(value)).isolates
        if not isolated and not context.meta.get("patchgym.unsafe"):
            raise UsageError(
                f"The {value} sandbox isolates nothing: code of tasks and of the model would run as you",
                mend="Add --unsafe if that is what you want, or leave --sandbox out.",
            )

    command = click.option(
        "--unsafe",
        is_flag=True,
        is_eager=True,  # before --sandbox, which asks for it
        expose_value=False,
        callback=remember,
        help="Allow --sandbox process: code of tasks and of the model runs as you, without isolation.",
    )(command)
    return click.option(
        "--sandbox",
        metavar="KIND",
        default=_DEFAULT_KIND,
        show_default=True,
        expose_value=False,
        callback=remember,
        help="Where commands run: namespace, docker, or process, which has no isolation and needs --unsafe.",
    )(command)


def chosen_kind() -> str:
    """The kind of sandbox that the command line asks for."""
    context = click.get_current_context(silent=True)
    return str(context.meta.get("patchgym.sandbox", _DEFAULT_KIND) if context is not None else _DEFAULT_KIND)


def _chosen_kind() -> SandboxKind:
    return sandbox_kind(chosen_kind())


def check_sandbox() -> None:
    """Whether this machine can make the sandboxes that the command line asks for; quick.

    Raises:
        PrerequisiteError: it cannot.
    """
    _chosen_kind().check()


def new_sandboxes(objects: ObjectStore) -> ClosingFactory:
    """Sandboxes over a store, of the kind that the command line asks for; the caller closes them."""
    return _chosen_kind()(objects)


@contextmanager
def sandboxes(objects: ObjectStore) -> Iterator[ClosingFactory]:
    """Sandboxes over a store, of the kind that the command line asks for; what they hold is released at the end.

    Raises:
        PrerequisiteError: this machine cannot make them.
    """
    factory = new_sandboxes(objects)
    try:
        yield factory
    finally:
        factory.close()


@contextmanager
def opened_run(path: Path, manifest: RunManifest, tasks: Sequence[Task], source: TaskSet) -> Iterator[RunDirectory]:
    """The run directory, with the tasks' trees in its own store.

    Raises:
        ConfigError, UsageError, DataError, StorageError: as ``RunDirectory.open_for_writing``.
    """
    run = RunDirectory.open_for_writing(path, manifest)
    try:
        copy_task_objects(tasks, source.objects, run.objects)
        run.keep_tasks(tasks)
        yield run
    finally:
        run.close()


def copy_task_objects(tasks: Sequence[Task], source: ObjectStore, target: ObjectStore) -> None:
    """Copy the workspaces and test files of tasks from one store to another."""
    for task in tasks:
        copy_task(task, source, target)


def make_manifest(command: str, config: Mapping[str, JsonValue], tasks: Sequence[Task], seed: int) -> RunManifest:
    """The manifest of a run that starts now."""
    now = datetime.now(UTC)
    return RunManifest(
        id=f"{command}-{now:%Y%m%d-%H%M%S}",
        command=command,
        config=dict(config),
        versions={"python": platform.python_version(), **_versions("patchgym", "torch", "transformers", "peft")},
        task_hashes={task.id: task.content_hash() for task in tasks},
        seed=seed,
        created_at=now,
    )


def chosen_tasks(tasks: TaskSet, split: str, ids: Sequence[str]) -> tuple[Task, ...]:
    """The tasks that a command line asks for.

    Raises:
        UsageError: a named task is not in the set, or none is left.
    """
    known = {task.id for task in tasks.tasks}
    for name in ids:
        if name not in known:
            raise UsageError(f"There is no task {name} in {tasks.path}", mend="patchgym tasks show SET lists them.")
    found = tuple(task for task in tasks.tasks if split in ("all", task.split) and (not ids or task.id in ids))
    if not found:
        raise UsageError(f"No task of {tasks.path} is left to work on", why=f"The split asked for is {split}.")
    return found


def collect(
    title: str,
    collector: Collector,
    run: RunDirectory,
    phase: Phase,
    source: PolicySource,
    settings: RolloutSettings,
) -> list[Trajectory]:
    """Collect a phase while a person watches, log what its rewards are made of, and return its trajectories with the
    rewards that they have in their groups."""
    return collect_with(title, run, phase, lambda final: collector.collect(phase, source, settings, final))


def collect_with(
    title: str,
    run: RunDirectory,
    phase: Phase,
    work: Callable[[Callable[[Trajectory], None]], Coroutine[Any, Any, list[Trajectory]]],
) -> list[Trajectory]:
    """The same by ``work``, which is given what it calls with every trajectory that it made."""
    total = len(phase.tasks) * phase.samples
    with stage(title, total) as shown:
        counting = Counting()
        for trajectory in run.phase(phase.name):
            counting.add(trajectory)

        def final(trajectory: Trajectory) -> None:
            counting.add(trajectory)
            counts = counting.counts()
            shown.update(counts.trajectories, total, _note(counts))

        found = settle(asyncio.run(work(final)))
        shown.update(total, total, _note(count_run(found)))
    log_rewards(run, phase.name, found)
    return found


def search(
    title: str,
    collector: Collector,
    run: RunDirectory,
    phase: Phase,
    source: PolicySource,
    settings: RolloutSettings,
    how: SearchSettings,
) -> list[Trajectory]:
    """The same for search trees, of which the paths are returned."""
    total = len(phase.tasks) * phase.samples
    with stage(title, total) as shown:
        done = [sum(run.tree(name).phase == phase.name for name in run.tree_ids)]

        def final(tree: Tree) -> None:
            done[0] += 1
            shown.update(done[0], total, f"{done[0]} of {total} trees, the last with {len(tree.nodes)} steps")

        asyncio.run(collector.search(phase, source, settings, how, final))
        found = settle(run.phase(phase.name))
        shown.update(total, total, _note(count_run(found)))
    log_rewards(run, phase.name, found)
    return found


def log_rewards(run: RunDirectory, name: str, found: Sequence[Trajectory]) -> None:
    """Add to a run's metrics what the terms did to the rewards of a phase, unless it says so already.

    Raises:
        StorageError: the disk is full or not writable.
    """
    row: dict[str, JsonValue] = {"kind": "reward", "name": name, "log": log_of(found).model_dump(mode="json")}
    if row not in run.metrics():
        run.log_metrics(row)


def _note(counts: RunCounts) -> str:
    lost = f", {counts.infra_error} lost to infrastructure" if counts.infra_error else ""
    return f"{counts.solved} of {counts.trajectories} solved, mean reward {number(counts.mean_reward)}{lost}"


def _versions(*names: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
