"""``patchgym tasks probe``: calls with known results for every task of a set."""

import asyncio
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchgym.cli.console import show_json, show_line, show_table, stage
from patchgym.cli.workshop import copy_task_objects, sandbox_options, sandboxes
from patchgym.content import ObjectStore
from patchgym.errors import UsageError
from patchgym.sandbox.environments import build_environment
from patchgym.tasks import TaskSet

if TYPE_CHECKING:
    from pydantic import JsonValue

    from patchgym.tasks.probing import Probed


@click.command()
@click.argument("taskset", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Where the set with probes is written.")
@click.option("--json", "as_json", is_flag=True, help="Print what was made as JSON.")
@sandbox_options
def command(taskset: Path, out: Path, as_json: bool) -> None:
    """Record calls to what each task's solution touches, with their results, and write the set with them.

    Grading asks them where no test runs. Exit code 1 when a task has to be left out because its own solution fails its
    tests, or when a sandbox was lost.
    """
    if out.exists():
        raise UsageError(f"{out} exists already", mend="Choose another place for the task set, or remove it.")
    from patchgym.tasks.probing import write_probed

    source = TaskSet.load(taskset)
    with tempfile.TemporaryDirectory(prefix="patchgym-probe-") as scratch:
        objects = ObjectStore(Path(scratch))  # the set's own store stays as it is
        found = _probe(source, objects)
        kept = write_probed(source, found, objects, out)
    if as_json:
        show_json({"tasks": [_told(one) for one in found], "written": kept})
    else:
        _show(found, taskset.name)
        show_line(f"{kept} tasks written to {out}.")
    sys.exit(1 if any(one.problem for one in found) else 0)


def _probe(source: TaskSet, objects: ObjectStore) -> "list[Probed]":
    from patchgym.grading.probes import ProbeMaker
    from patchgym.tasks.probing import probe_tasks

    copy_task_objects(source.tasks, source.objects, objects)
    with sandboxes(objects) as factory, stage("Make probes", len(source.tasks)) as shown:
        maker = ProbeMaker(factory, objects, build_environment)
        cores = len(os.sched_getaffinity(0))

        def progress(done: int, total: int) -> None:
            shown.update(done, total, f"{done} of {total} tasks")

        return asyncio.run(probe_tasks(source.tasks, objects, maker, cores, progress))


def _told(one: "Probed") -> "dict[str, JsonValue]":
    counts: dict[str, JsonValue] = {"task": one.id, "kept": one.task is not None, "problem": one.problem}
    if one.probes is not None:
        counts |= {**one.probes.counts(), "left_out": dict(one.probes.left_out), "seconds": one.probes.seconds}
    return counts


def _show(found: "Sequence[Probed]", name: str) -> None:
    rows: list[tuple[str, ...]] = []
    left_out: Counter[str] = Counter()
    for one in found:
        if one.probes is None:
            rows.append((one.id, "-", "-", "-", "-", "-", one.problem))
            continue
        counts = one.probes.counts()
        left_out.update(one.probes.left_out)
        figures = [str(counts[key]) for key in ("recorded", "counting", "noticing", "varied", "varied_counting")]
        rows.append((one.id, *figures, ""))
    columns = ("task", "recorded", "count", "notice the bug", "varied", "of them count", "")
    show_table(f"{name}: calls with known results", columns, rows)
    if left_out:
        reasons = [(reason, str(count)) for reason, count in left_out.most_common()]
        show_table("Calls left out", ("reason", "calls"), reasons)
    asked = sum(bool(one.probes and one.probes.counting) for one in found)
    show_line(f"{asked} of {len(found)} tasks have probes that count.")
