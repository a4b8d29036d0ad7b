"""``patchgym tasks audit``: what is wrong with the tasks of a set."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchgym.cli.console import show_json, show_line, show_table, stage
from patchgym.cli.workshop import chosen_tasks, copy_task_objects, sandboxes
from patchgym.config import validated
from patchgym.content import ObjectStore
from patchgym.errors import UsageError
from patchgym.records import Task
from patchgym.sandbox.environments import build_environment
from patchgym.tasks import TaskSet
from patchgym.tasks.cleaning import write_without
from patchgym.tasks.flakes import Flake, read_flakes

if TYPE_CHECKING:
    from patchgym.tasks.gates.audit import AuditReport
    from patchgym.tasks.gates.settings import GateSettings


@click.command()
@click.argument("taskset", type=click.Path(path_type=Path))
@click.option("--task", "ids", multiple=True, metavar="ID", help="Only this task; may be repeated.")
@click.option("--no-workspace", is_flag=True, help="Leave out the search of each task's sandbox.")
@click.option("--allow", "allowed", multiple=True, metavar="SPDX", help="A licence to allow beside the default ones.")
@click.option("--least-points", default=0, show_default=True, type=click.IntRange(0, 20), help="Priority score wanted.")
@click.option("--clean", type=click.Path(path_type=Path), metavar="OUT", help="Write a set of the rest to this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(
    taskset: Path,
    ids: tuple[str, ...],
    no_workspace: bool,
    allowed: tuple[str, ...],
    least_points: int,
    clean: Path | None,
    as_json: bool,
) -> None:
    """Search every task for leaks, missing proof and licences that are not allowed.

    Exit code 1 when anything is found. With --clean, the tasks in which nothing is found are written as a set of their
    own.
    """
    if clean is not None and ids:
        raise UsageError("--clean writes the whole set, and --task looks at some of it", mend="Leave one of them out.")
    tasks = TaskSet.load(taskset)
    flakes = read_flakes(taskset)
    report = _audit(tasks, flakes, chosen_tasks(tasks, "all", ids), _settings(allowed, least_points), not no_workspace)
    if as_json:
        show_json({**report.model_dump(mode="json"), "counts": dict(report.counts())})
    else:
        _show(report, taskset.name, not no_workspace)
    if clean is not None:
        left = write_without(tasks, {one.task for one in report.findings}, clean)
        if not as_json:
            show_line(f"{left} of {len(tasks.tasks)} tasks are clean. Written to {clean}.")
    sys.exit(1 if report.findings else 0)


def _settings(allowed: Sequence[str], least_points: int) -> "GateSettings":
    from patchgym.tasks.gates.settings import GateSettings
    from patchgym.tasks.gates.spdx import canonical

    default = GateSettings()
    more = [canonical(one) for one in allowed]
    strange = next((one for one in more if " " in one), None)
    if strange is not None:
        raise UsageError(f"--allow takes one licence, not {strange!r}", mend="Repeat --allow for each licence.")
    changes = {
        "licences": {"allowed": (*default.licences.allowed, *more)},
        "priority": {"least_points": least_points},
    }
    return validated(GateSettings, changes, "of the command line")


def _audit(
    tasks: TaskSet, flakes: Sequence[Flake], chosen: Sequence[Task], settings: "GateSettings", attack: bool
) -> "AuditReport":
    from patchgym.tasks.gates.audit import Attacker, audit

    # The set's own store stays as it is: patched trees go into a copy.
    with tempfile.TemporaryDirectory(prefix="patchgym-audit-") as scratch:
        objects = ObjectStore(Path(scratch))
        copy_task_objects(chosen, tasks.objects, objects)
        with sandboxes(objects) as factory, stage("Audit tasks", len(chosen)) as shown:
            cores = len(os.sched_getaffinity(0))
            attacker = Attacker(factory, build_environment, cores) if attack else None

            def progress(done: int, total: int) -> None:
                shown.update(done, total)

            return asyncio.run(audit(chosen, objects, settings, attacker, flakes=flakes, on_progress=progress))


def _show(report: "AuditReport", name: str, attacked: bool) -> None:
    from patchgym.tasks.gates.audit import findings_by_task

    searched = f"{report.attacked} workspaces searched" if attacked else "workspaces not searched"
    if not report.findings:
        show_line(f"{name}: nothing found in {report.tasks} tasks ({searched}).")
        return
    for task, findings in findings_by_task(report).items():
        rows = [
            (f"{one.check}/{one.kind}", f"{one.where}: {one.evidence}" if one.where else one.evidence, one.mend)
            for one in findings
        ]
        show_table(task or "the whole set", ("check", "evidence", "mend"), rows)
    counts = ", ".join(f"{count} {kind}" for kind, count in report.counts().items())
    bad = len({one.task for one in report.findings if one.task})
    show_line(f"{name}: {len(report.findings)} findings in {bad} of {report.tasks} tasks ({searched}): {counts}")
