"""``patchgym eval``: a policy on held-out tasks."""

from collections.abc import Sequence
from pathlib import Path

import click

from patchgym.cli.asked import Asked, policy_options
from patchgym.cli.console import number, show_json, show_line, show_table
from patchgym.cli.rollout import PHASE, rollout
from patchgym.cli.workshop import chosen_tasks
from patchgym.evaluate import EvalReport, FailureType, evaluate
from patchgym.policy.models import read_checkpoint
from patchgym.records import Task
from patchgym.store import RunDirectory
from patchgym.tasks import TaskSet
from patchgym.tasks.overlap.fingerprints import fingerprint_tasks
from patchgym.tasks.overlap.refuse import refuse_trained


@click.command()
@click.argument("taskset", type=click.Path(path_type=Path))
@policy_options(split="heldout", temperature=0.0)
def command(taskset: Path, asked: Asked) -> None:
    """Measure a frozen policy: pass@1 and pass@k with intervals over tasks, and how it fails."""
    tasks = TaskSet.load(taskset)
    chosen = chosen_tasks(tasks, asked.split, asked.ids)
    _refuse_trained(asked.policy, chosen, tasks)
    rollout(tasks, chosen, asked)
    report = evaluate(RunDirectory.read(asked.out).phase(PHASE), chosen, seed=asked.seed)
    if asked.as_json:
        show_json(report)
    else:
        show_eval({asked.policy: report})
        show_line(f"\nThe run is in {asked.out}.")


def _refuse_trained(policy: str, tasks: Sequence[Task], source: TaskSet) -> None:
    """A checkpoint is not measured on tasks that overlap those it was trained on."""
    kind, _, path = policy.partition(":")
    if kind in ("local", "vllm") and (Path(path) / "checkpoint.json").is_file():
        trained_on = read_checkpoint(Path(path)).trained_on
        refuse_trained(trained_on, fingerprint_tasks(tasks, source.objects))


def show_eval(reports: dict[str, EvalReport]) -> None:
    """Evaluations side by side, one a row."""
    rows = [
        (
            name,
            number(report.pass_at_1.value if report.pass_at_1 else None),
            f"{report.pass_at_1.low:.2f}..{report.pass_at_1.high:.2f}" if report.pass_at_1 else "-",
            str(report.tasks),
            number(report.mean_reward),
            number(report.mean_steps, 1),
            number(report.valid_action_rate),
        )
        for name, report in reports.items()
    ]
    show_table("Evaluation", ("policy", "pass@1", "95%", "tasks", "reward", "steps", "valid"), rows)
    kinds = [kind for kind in FailureType if any(report.failures.get(kind) for report in reports.values())]
    failures = [(kind.replace("_", " "), *(str(r.failures.get(kind, 0)) for r in reports.values())) for kind in kinds]
    if failures:
        show_table("\nWhy attempts failed", ("", *reports), failures)
