"""``patchgym eval``: a policy, or attempts that were made elsewhere, on held-out tasks."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from patchgym.cli.asked import Asked, policy_options
from patchgym.cli.console import number, show_json, show_line, show_table
from patchgym.cli.executing import executor_options, refuse_afar
from patchgym.cli.rollout import PHASE, rollout
from patchgym.cli.workshop import chosen_tasks
from patchgym.errors import UsageError
from patchgym.evaluate import Estimate, EvalReport, FailureType, Power, evaluate
from patchgym.evaluate.kept import keep
from patchgym.policy.models import read_checkpoint
from patchgym.records import Task
from patchgym.store import RunDirectory
from patchgym.tasks import TaskSet
from patchgym.tasks.overlap.fingerprints import fingerprint_tasks
from patchgym.tasks.overlap.refuse import refuse_trained

_LOST = 20  # exit code 1 where more than one in so many was lost to infrastructure


@click.command()
@click.argument("taskset", type=click.Path(path_type=Path))
@click.option(
    "--attempts",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="In place of --policy: grade what a run of imported or replayed logs holds.",
)
@policy_options(split="heldout", temperature=0.0, policy=False)
@executor_options
def command(taskset: Path, attempts: Path | None, asked: Asked) -> None:
    """Measure a frozen policy: pass@1 and pass@k with intervals over tasks, and how it fails.

    The evaluation is kept in RUN/eval; patchgym compare sets it against others. With --attempts nothing is sampled:
    what another agent did is graded, and counts as one more policy's attempts. Exit code 1 means that more than one
    attempt in twenty was lost to infrastructure.
    """
    if bool(asked.policy) == (attempts is not None):
        raise UsageError("Say what to measure", mend="Give --policy, or --attempts with a run of imported logs.")
    tasks = TaskSet.load(taskset)
    chosen = chosen_tasks(tasks, asked.split, asked.ids)
    notes: list[str] = []
    if attempts is not None:
        from patchgym.cli.attempts import take_attempts

        refuse_afar("Grading of --attempts")
        notes = take_attempts(attempts, tasks, chosen, asked)
    else:
        _refuse_trained(asked.policy, chosen, tasks)
        rollout(tasks, chosen, asked)
    run = RunDirectory.read(asked.out)
    found = map(run.trajectory, run.phases.get(PHASE, []))
    report = evaluate(found, chosen, seed=asked.seed, objects=run.objects, notes=notes)
    kept = keep(run, PHASE, report)
    if asked.as_json:
        show_json(report)
    else:
        show_eval({asked.policy or asked.out.name: report})
        show_details(report)
        show_line(f"\nThe run is in {asked.out}, the evaluation in {kept}.")
    sys.exit(1 if report.infra_failures * _LOST > report.trajectories else 0)


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
            interval(report.pass_at_1),
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


def interval(estimate: Estimate | None, digits: int = 2) -> str:
    """The interval of an estimate; a dash where there is none."""
    return "-" if estimate is None else f"{estimate.low:.{digits}f}..{estimate.high:.{digits}f}"


def show_details(report: EvalReport) -> None:
    """What else an evaluation says: pass@k, effort, stability, what its tasks can show, and what limits it."""
    shown = [one for one in report.pass_at if one.k > 1 and (one.k & (one.k - 1) == 0 or one.k == len(report.pass_at))]
    if shown:
        rows = [
            (str(one.k), number(one.estimate.value), interval(one.estimate), str(one.estimate.tasks)) for one in shown
        ]
        show_table("\nOne of k samples solves it", ("k", "pass@k", "95%", "tasks"), rows)
    valid = report.trajectories - report.infra_failures - report.ungraded
    show_line(
        f"\n{valid} of {report.trajectories} attempts count: {report.infra_failures} lost to infrastructure, "
        f"{report.ungraded} not graded."
    )
    show_line(
        f"Steps {_estimate(report.steps, report.mean_steps)}, to a solution {_estimate(report.steps_to_solve, None)}; "
        f"sampled tokens {_estimate(report.tokens, report.mean_tokens, 0)}."
    )
    if report.timeouts:
        whose = ", ".join(f"{name} {count}" for name, count in report.timeouts.items())
        show_line(f"Time ran out in {sum(report.timeouts.values())} attempts, by what used it up: {whose}.")
    stable = report.stability
    if stable is not None:
        show_line(
            f"{stable.repeats} repeats on {stable.tasks} tasks: pass@1 from {min(stable.pass_at_1):.2f} to "
            f"{max(stable.pass_at_1):.2f}, standard deviation {stable.deviation:.3f} (of independent draws "
            f"{stable.expected_deviation:.3f}); {len(stable.flipping)} tasks come out both ways."
        )
    show_power(report.power)
    for note in report.notes:
        show_line(f"Note: {note}")


def show_power(power: Power | None) -> None:
    """How many tasks it takes to see a difference, and how small a one these can show."""
    if power is None:
        return
    best = ""
    if power.tasks_needed_at_best is not None and power.tasks_needed_at_best < power.tasks_needed:
        best = f" ({power.tasks_needed_at_best:,} with many samples of each)"
    shown = f"show {100 * power.smallest:.0f} points" if power.smallest < 1 else "can show no difference"
    alike = "between these two" if power.basis == "paired" else "between two policies like this one, at worst,"
    show_line(
        f"To see {100 * power.difference:.0f} points {alike} takes {power.tasks_needed:,} tasks{best}; "
        f"{power.tasks:,} tasks {shown} (level {power.level:.0%}, power "
        f"{power.power:.0%})."
    )


def _estimate(found: Estimate | None, mean: float | None, digits: int = 1) -> str:
    if found is None:
        return number(mean, digits)
    return f"{number(found.value, digits)} ({interval(found, digits)})"
