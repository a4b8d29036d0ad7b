"""``patchgym grade``: verdicts on patches from a file."""

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click
from pydantic import JsonValue

from patchgym.cli.console import show_json, show_line, show_table, stage
from patchgym.cli.executing import executor_options
from patchgym.cli.patchfile import read_patches
from patchgym.cli.workshop import copy_task_objects, sandbox_options, sandboxes
from patchgym.content import ObjectStore
from patchgym.grading import GRADER_VERSION
from patchgym.records import Outcome, Task, TestReport, Verdict
from patchgym.tasks import TaskSet
from patchgym.tasks.flakes import Flake, note_flakes


@click.command()
@click.argument("taskset", type=click.Path(path_type=Path))
@click.option("--patches", type=click.Path(path_type=Path), required=True, help='JSONL of {"task_id", "patch"}.')
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1), help="Gradings of each patch.")
@click.option("--quality", is_flag=True, help="Also measure how each patch is made: compiles, new lint, own tests.")
@click.option("--json", "as_json", is_flag=True, help="Print every report as JSON.")
@sandbox_options
@executor_options
def command(taskset: Path, patches: Path, repeat: int, quality: bool, as_json: bool) -> None:
    """Grade patches in fresh sandboxes with pristine tests.

    With --repeat, each patch is graded so many times, and what does not agree is noted in the task set, where
    `tasks audit` finds it. Exit code 1 when grading itself failed, or gradings of one patch do not agree.
    """
    tasks = TaskSet.load(taskset)
    pairs = read_patches(patches, tasks)
    graded = _grade(tasks, pairs, repeat, quality)
    flakes = _flakes(graded)
    if as_json:
        show_json(_document(graded, flakes, repeat))
    else:
        _show(patches.name, graded, flakes)
    note_flakes(taskset, (one.flake for one in flakes))
    lost = any(report.verdict is Verdict.INFRA_ERROR for one in graded for report in one.reports)
    sys.exit(1 if lost or flakes else 0)


@dataclass(frozen=True)
class _Graded:
    """A patch (by its ``line`` in the file) and every report on it."""

    line: int
    task: Task
    reports: tuple[TestReport, ...]


@dataclass(frozen=True)
class _Flaked:
    """What gradings of the patch of one ``line`` do not agree on."""

    line: int
    flake: Flake


def _flakes(graded: Sequence[_Graded]) -> list[_Flaked]:
    """Every disagreement. A grading that the machine spoiled says nothing."""
    found: list[_Flaked] = []
    now = datetime.now(UTC)

    def note(one: _Graded, test: str | None, seen: tuple[str, ...]) -> None:
        flake = Flake(task_id=one.task.id, test=test, seen=seen, grader_version=GRADER_VERSION, at=now)
        found.append(_Flaked(one.line, flake))

    for one in graded:
        told = [report for report in one.reports if report.verdict is not Verdict.INFRA_ERROR]
        tests = {test: tuple(report.tests.get(test, Outcome.MISSING) for report in told) for test in _tests(told)}
        shaky = {test: seen for test, seen in tests.items() if len(set(seen)) > 1}
        for test, seen in sorted(shaky.items()):
            note(one, test, tuple(map(str, seen)))
        verdicts = tuple(str(report.verdict) for report in told)
        if len(set(verdicts)) > 1 and not shaky:
            note(one, None, verdicts)
    return found


def _tests(reports: Sequence[TestReport]) -> set[str]:
    return {test for report in reports for test in report.tests}


def _document(graded: Sequence[_Graded], flakes: Sequence[_Flaked], repeat: int) -> JsonValue:
    every = [report for one in graded for report in one.reports]
    rows: list[JsonValue] = [
        {"task_id": one.task.id, "line": one.line, **report.model_dump(mode="json")}
        for one in graded
        for report in one.reports
    ]
    told: list[JsonValue] = [
        {"task_id": one.flake.task_id, "line": one.line, "test": one.flake.test, "seen": list(one.flake.seen)}
        for one in flakes
    ]
    counts: dict[str, JsonValue] = {str(verdict): sum(r.verdict is verdict for r in every) for verdict in Verdict}
    return {"graded": len(graded), "repeat": repeat, **counts, "flakes": told, "reports": rows}


def _show(title: str, graded: Sequence[_Graded], flakes: Sequence[_Flaked]) -> None:
    rows = [
        (
            str(one.line),
            one.task.id,
            str(report.verdict),
            f"{report.fail_to_pass.passed}/{report.fail_to_pass.total}",
            f"{report.hidden.passed}/{report.hidden.total}",
            f"{report.pass_to_pass.passed}/{report.pass_to_pass.total}",
            report.why[:200],
        )
        for one in graded
        for report in one.reports
    ]
    show_table(title, ("line", "task", "verdict", "fail-to-pass", "hidden", "pass-to-pass", "why"), rows)
    if flakes:
        told = [one.flake for one in flakes]
        ledger = [(flake.task_id, flake.test or "the verdict", " ".join(flake.seen)) for flake in told]
        show_table("Gradings of one patch that do not agree", ("task", "test", "seen"), ledger)
    if not graded:
        show_line("The file holds no patch.")


def _grade(tasks: TaskSet, pairs: Sequence[tuple[int, Task, str]], repeat: int, quality: bool) -> list[_Graded]:
    from patchgym.cli.bench import cluster_asked_for, grading_over

    with tempfile.TemporaryDirectory(prefix="patchgym-grade-") as scratch:
        objects = ObjectStore(Path(scratch))
        copy_task_objects(list({task.id: task for _, task, _ in pairs}.values()), tasks.objects, objects)
        total = len(pairs) * repeat
        with (
            cluster_asked_for() as cluster,
            sandboxes(objects) as factory,
            stage("Grade patches", total) as shown,
        ):
            done = 0

            async def one(grade: Callable[[Task, str], Awaitable[TestReport]], task: Task, patch: str) -> TestReport:
                nonlocal done
                report = await grade(task, patch)
                done += 1
                shown.update(done, total, f"{done} of {total}")
                return report

            async def every() -> list[_Graded]:
                async with grading_over(objects, factory, cluster, quality=quality) as grade:

                    async def patch(line: int, task: Task, text: str) -> _Graded:
                        reports = await asyncio.gather(*(one(grade, task, text) for _ in range(repeat)))
                        return _Graded(line, task, tuple(reports))

                    return list(await asyncio.gather(*(patch(*pair) for pair in pairs)))

            return asyncio.run(every())
