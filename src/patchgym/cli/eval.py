"""``patchgym eval``: a policy on held-out tasks."""

from pathlib import Path

import click

from patchgym.cli.console import number, show_json, show_line, show_table
from patchgym.cli.rollout import PHASE, rollout
from patchgym.cli.workshop import chosen_tasks
from patchgym.evaluate import EvalReport, evaluate
from patchgym.rollout import PolicyOptions, RolloutSettings
from patchgym.store import RunDirectory
from patchgym.tasks import TaskSet


@click.command()
@click.argument("taskset", type=click.Path(path_type=Path))
@click.option("--policy", required=True, help="gold, noop, scripted:FILE, local:PATH, local:smollm2 or openai:MODEL.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The run directory; an old one is resumed.")
@click.option("--samples", default=1, show_default=True, type=click.IntRange(1), help="Samples of each task.")
@click.option("--split", type=click.Choice(["all", "train", "heldout"]), default="heldout", show_default=True)
@click.option("--temperature", default=0.0, show_default=True, type=click.FloatRange(0))
@click.option("--max-tokens", default=512, show_default=True, type=click.IntRange(1), help="Tokens of one message.")
@click.option("--concurrency", default=16, show_default=True, type=click.IntRange(1), help="Episodes at once.")
@click.option("--seed", default=0, show_default=True)
@click.option("--base-url", help="Where the endpoint of openai:MODEL is. [default: $OPENAI_BASE_URL]")
@click.option("--protocol", type=click.Choice(["native", "text"]), default="native", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    taskset: Path,
    policy: str,
    out: Path,
    samples: int,
    split: str,
    temperature: float,
    max_tokens: int,
    concurrency: int,
    seed: int,
    base_url: str | None,
    protocol: str,
    as_json: bool,
) -> None:
    """Measure a frozen policy: pass@1 and pass@k with intervals over tasks, and how it fails."""
    tasks = TaskSet.load(taskset)
    chosen = chosen_tasks(tasks, split, ())
    settings = RolloutSettings(concurrency=concurrency, temperature=temperature, max_tokens=max_tokens)
    options = PolicyOptions(base_url=base_url, native_tools=protocol == "native", batch=concurrency)
    rollout(tasks, chosen, policy, options, settings, samples, seed, out)
    report = evaluate(RunDirectory.read(out).phase(PHASE), chosen, seed=seed)
    if as_json:
        show_json(report)
    else:
        show_eval({policy: report})
        show_line(f"\nThe run is in {out}.")


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
            ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in report.failures.items()) or "-",
        )
        for name, report in reports.items()
    ]
    columns = ("policy", "pass@1", "95%", "tasks", "reward", "steps", "valid", "failures")
    show_table("Evaluation", columns, rows)
