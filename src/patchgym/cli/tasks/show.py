"""``patchgym tasks show``: the tasks of a set, or one of them."""

from pathlib import Path

import click

from patchgym.cli.console import say, show_json, show_line, show_table
from patchgym.content import ObjectStore
from patchgym.records import Task
from patchgym.tasks import TaskSet


@click.command()
@click.argument("taskset", type=click.Path(path_type=Path))
@click.argument("task_id", required=False)
@click.option("--whole", is_flag=True, help="With TASK_ID: also the hidden tests, the gold patch and the proof.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(taskset: Path, task_id: str | None, whole: bool, as_json: bool) -> None:
    """List the tasks of a set, or show one as the agent sees it."""
    found = TaskSet.load(taskset)
    if task_id is not None:
        task = found.task(task_id)
        if as_json:
            show_json(task if whole else task.view())
        else:
            _show_task(task, whole, found.objects)
    elif as_json:
        show_json([task.view().model_dump(mode="json") for task in found.tasks])
    else:
        for side in ("train", "heldout"):
            tasks = found.split(side)
            if tasks:
                proved = sum(task.validation is not None and task.validation.proved for task in tasks)
                title = f"{taskset.name}, {side}: {len(tasks)} tasks, {proved} of them proved"
                show_table(title, ("task", "kind", "fail+hidden", "pass", "lines"), [_row(task) for task in tasks])


def _row(task: Task) -> tuple[str, ...]:
    kind = {"release_pair": "pair"}.get(task.source.kind, task.source.kind)
    failing = f"{len(task.view().failing_tests)}+{len(task.tests.hidden)}"
    return task.id, kind, failing, str(len(task.tests.pass_to_pass)), str(task.scope.lines)


def _show_task(task: Task, whole: bool, objects: ObjectStore) -> None:
    view = task.view()
    show_line(f"{task.id} ({task.source.repo} {task.source.version or ''}, {task.split})\n\n{view.instruction}\n")
    show_line("Failing tests that the agent sees:\n" + "\n".join(f"  {test}" for test in view.failing_tests))
    if view.environment.services:
        show_line("Services that run beside it: " + ", ".join(service.name for service in view.environment.services))
    if not whole:
        say("The agent sees no more than this. --whole shows the rest.")
        return
    show_line("\nHidden failing tests:\n" + "\n".join(f"  {test}" for test in task.tests.hidden))
    show_line(f"\n{len(task.tests.pass_to_pass)} tests must stay passing.\nOrigin: {task.source.change}")
    show_line("\n".join([*_facts(task), _probes(task, objects)]))
    show_line(f"\nGold patch:\n{task.gold_patch}")


def _probes(task: Task, objects: ObjectStore) -> str:
    """How many calls with known results it has."""
    from patchgym.grading.probes import load_probes

    probes = load_probes(objects, task)
    if probes is None:
        return "Probes: none (patchgym tasks probe makes them)"
    counts = probes.counts()
    told = f"{counts['counting']} recorded calls count, {counts['noticing']} of them notice what is wrong"
    return f"Probes: {told}; {counts['varied']} varied ones, {counts['varied_counting']} of which count"


def _facts(task: Task) -> list[str]:
    """How it was proved, how hard it looks, and how fit it is for training, a line each."""
    from patchgym.tasks.gates.priority import priority_of

    lines: list[str] = []
    proof = task.validation
    if proof is not None:
        runs = proof.runs
        told = f"base failed {proof.base_failed} of {runs}, nothing done failed {proof.noop_failed} of {runs}"
        lines.append(f"Proof: {told}, gold passed {proof.gold_passed} of {runs}")
        if proof.mutants is not None:
            planted = proof.mutants.killed + proof.mutants.survived
            lines.append(f"Tests: they noticed {proof.mutants.killed} of {planted} bugs planted in the solution")
    if task.difficulty is not None:
        lines.append(f"Difficulty {task.difficulty.score:.2f}: {'; '.join(task.difficulty.why)}")
    priority = priority_of(task)
    lines.append(f"Priority {priority.total} of 20")
    for row in priority.rows:
        missing = [point.why for point in row.points if not point.given]
        lines.append(f"  {row.name} {row.total} of {len(row.points)}{': ' + '; '.join(missing) if missing else ''}")
    return lines
