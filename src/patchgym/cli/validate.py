"""``patchgym validate``: prove a task set again."""

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from patchgym.cli.console import show_json, show_line, show_table, stage
from patchgym.cli.executing import executor_options, refuse_afar
from patchgym.cli.workshop import copy_task_objects, sandbox_options, sandboxes
from patchgym.content import ObjectStore
from patchgym.errors import EnvironmentBuildError, PatchError, SandboxError
from patchgym.records import MutantScore, Outcome, Task
from patchgym.tasks import TaskSet

_FEW_TASKS = 3
_DEALT = 16


@click.command()
@click.argument("taskset", type=click.Path(path_type=Path))
@click.option("--runs", default=3, show_default=True, type=click.IntRange(1), help="Fresh runs of each kind.")
@click.option("--mutants", default=0, show_default=True, type=click.IntRange(0), help="Bugs to plant in each solution.")
@click.option("--task", "ids", multiple=True, metavar="ID", help="Only this task; may be repeated.")
@click.option("--exploits", is_flag=True, help="Grade the exploit corpus instead of proving.")
@click.option(
    "--exploits-per-task",
    "per_task",
    type=click.IntRange(0),
    help=f"Exploits dealt to each task; 0: all. Unless given, all for up to {_FEW_TASKS} tasks, else {_DEALT}.",
)
@click.option("--seed", default=0, show_default=True, help="Which exploits are dealt to which task.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@sandbox_options
@executor_options
def command(
    taskset: Path,
    runs: int,
    mutants: int,
    ids: tuple[str, ...],
    exploits: bool,
    per_task: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Prove every task again: the workspace as it is fails, a submission that does nothing fails, the gold patch
    passes, every time.

    With --mutants, bugs are planted in each solution, and those that its tests do not notice are counted. With
    --exploits, ways to be called solved without solving are graded instead, each with an honest attempt that looks
    like it. Exit code 1 when a task does not prove, an exploit scores, or an honest attempt does not pass.
    """
    tasks = TaskSet.load(taskset)
    chosen = [tasks.task(name) for name in ids] or list(tasks.tasks)
    if exploits:
        from patchgym.cli.exploits import try_exploits

        refuse_afar("The exploit corpus")
        few = len(chosen) <= _FEW_TASKS
        count = None if per_task == 0 or (per_task is None and few) else per_task or _DEALT
        sys.exit(0 if try_exploits(taskset.name, chosen, tasks.objects, count, seed, as_json=as_json) else 1)
    found = _validate(chosen, tasks.objects, runs, mutants)
    proved = len(chosen) - len(found.failed)
    killed = sum(score.killed for score in found.mutants.values())
    planted = killed + sum(score.survived for score in found.mutants.values())
    if as_json:
        show_json(
            {
                "tasks": len(chosen),
                "runs": runs,
                "proved": proved,
                "failed": dict(found.failed),
                "flaky": {test: [str(outcome) for outcome in seen] for test, seen in found.flaky.items()},
                "mutants": {"planted": planted, "killed": killed} if mutants else None,
            }
        )
    else:
        rows = [("proved", str(proved)), *((task, reason) for task, reason in found.failed.items())]
        show_table(f"{taskset.name}, {runs} runs each", ("task", "result"), rows)
        if found.flaky:
            ledger = [(test, " ".join(seen)) for test, seen in found.flaky.items()]
            show_table("Tests whose outcomes do not agree", ("test", "outcomes"), ledger)
        if mutants:
            weak = [(task, f"{s.killed} of {s.killed + s.survived}") for task, s in found.mutants.items() if s.survived]
            show_table("Tasks whose tests let planted bugs pass", ("task", "noticed"), weak)
            show_line(f"The tests noticed {killed} of {planted} bugs planted in solutions.")
    sys.exit(1 if found.failed else 0)


@dataclass
class _Found:
    """What validation found out, by task or test."""

    failed: dict[str, str] = field(default_factory=dict)
    flaky: dict[str, tuple[Outcome, ...]] = field(default_factory=dict)
    mutants: dict[str, MutantScore] = field(default_factory=dict)


def _validate(tasks: Sequence[Task], source: ObjectStore, runs: int, mutants: int) -> _Found:
    from patchgym.cli.bench import bench_over, cluster_asked_for
    from patchgym.tasks.funnel import Dropped
    from patchgym.tasks.proof.bench import Bench, together
    from patchgym.tasks.proof.prove import prove_task

    found = _Found()
    with tempfile.TemporaryDirectory(prefix="patchgym-validate-") as scratch:
        objects = ObjectStore(Path(scratch))
        copy_task_objects(tasks, source, objects)
        with sandboxes(objects) as factory, stage("Prove tasks", len(tasks)) as shown:
            done = 0

            async def one(bench: Bench, task: Task) -> None:
                nonlocal done
                try:
                    if not task.environment.python:
                        raise Dropped("no_environment")
                    proved = await prove_task(task, bench, runs, mutants)
                except Dropped as dropped:
                    found.failed[task.id] = dropped.reason
                except EnvironmentBuildError as error:
                    found.failed[task.id] = error.kind
                except PatchError:
                    found.failed[task.id] = "gold_fails"
                except SandboxError:
                    found.failed[task.id] = "infra_error"
                else:
                    assert proved.validation is not None
                    found.flaky.update(proved.validation.flaky)
                    if proved.tests != task.tests:
                        found.failed[task.id] = "unstable"
                    if proved.validation.mutants is not None:
                        found.mutants[task.id] = proved.validation.mutants
                done += 1
                shown.update(done, len(tasks), f"{done - len(found.failed)} proved, {len(found.failed)} not")

            async def every() -> None:
                async with bench_over(objects, factory, cluster) as bench:
                    await together(one(bench, task) for task in tasks)

            with cluster_asked_for() as cluster:
                asyncio.run(every())
    order = {task.id: at for at, task in enumerate(tasks)}
    found.failed = dict(sorted(found.failed.items(), key=lambda item: order[item[0]]))
    return found
