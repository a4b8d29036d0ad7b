"""A run in one page: what it is, how far it is, what its attempts come to phase by phase, what its updates did."""

from collections.abc import Callable, Mapping, Sequence

from pydantic import JsonValue

from patchgym.view.charts import Chart, Series, bar_chart, line_chart
from patchgym.view.checklist import kept_checklists
from patchgym.view.failing import Failing, failing_phases, failure_chart, failure_kinds
from patchgym.view.figures import Phase, Spread, phases, reward_bins
from patchgym.view.opened import OpenedRun
from patchgym.view.query import Query
from patchgym.view.site import Site

_CURVES = (
    ("loss", "Loss"),
    ("gradient_norm", "Norm of the gradient"),
    ("entropy", "Entropy of the policy (nats)"),
    ("kl", "Divergence from the reference (nats)"),
    ("clip_share", "Share of clipped tokens"),
    ("sampler_gap", "Gap between trainer and sampler (nats)"),
)
_OVER_TASKS = "95% interval over tasks"


def overview_page(site: Site, run: OpenedRun, query: Query) -> tuple[str, dict[str, object]]:
    """The overview."""
    with run.index.open() as connection:
        found, failed = phases(connection), failing_phases(connection)
        bins = reward_bins(connection)
    checks = kept_checklists(run.files)
    evaluations = kept_evaluations(run.files.evaluations())
    return "overview.html", {
        "phases": found,
        "charts": phase_charts(found, bins, failed),
        "failures": failed,
        "kinds": failure_kinds(failed),
        "curves": update_curves(run.updates()),
        "updates": [update_line(name, report) for name, report in run.updates()],
        "evaluations": evaluations,
        "checks": checks[-1] if checks else None,
        "beginnings": run.files.beginnings()[:12],
        "expected": expected(run),
        "problems": run.problems(8),
        "replay": run.files.document("replay.json"),
    }


def phase_charts(found: Sequence[Phase], bins: Sequence[tuple[str, int]], failed: Sequence[Failing]) -> list[Chart]:
    """What changes over phases; of a run with one phase, how its rewards lie."""
    sampled = [phase for phase in found if not phase.measures]
    heldout = [phase for phase in found if phase.measures] or [one for one in found if one.solved_heldout]
    charts = [bar_chart("Rewards", bins, note="attempts by reward, as recorded")]
    if len(found) > 1:
        charts += [
            _over("Mean reward", sampled, [("reward", lambda one: one.reward)]),
            _over(
                "Solved on held-out tasks",
                [one for one in heldout if one.solved_heldout],
                [("solved", lambda one: one.solved_heldout)],
                percent=True,
            ),
            _over("Steps an attempt", found, [("steps", lambda one: one.steps)]),
            _over(
                "Hacking",
                sampled,
                [("proof", lambda one: one.hacked_over), ("to look at", lambda one: one.marked_over)],
                percent=True,
            ),
            failure_chart(failed),
        ]
    return [chart for chart in charts if chart is not None]


def _over(
    title: str,
    found: Sequence[Phase],
    lines: Sequence[tuple[str, Callable[[Phase], Spread | None]]],
    *,
    percent: bool = False,
) -> Chart | None:
    series = [Series(name, [value(one) for one in found]) for name, value in lines]
    return line_chart(title, [one.name for one in found], series, percent=percent, note=_OVER_TASKS)


def _plain(value: float | None) -> Spread | None:
    return Spread(value, None, None, 0) if value is not None else None


def update_line(name: str, report: Mapping[str, JsonValue]) -> dict[str, object]:
    """An update for the table: what it was, whether it moved anything, and why not."""
    steps = [step for step in _list(report.get("steps")) if isinstance(step, dict)]
    gap = report.get("sampler_gap")
    return {
        "name": name,
        "algorithm": report.get("algorithm"),
        "rows": report.get("rows_used"),
        "steps": len(steps),
        "tokens": report.get("trained_tokens"),
        "gradient": report.get("gradient"),
        "why": report.get("why") or report.get("stopped_early") or "",
        "loss": [step.get("loss") for step in (steps[:1] + steps[-1:])] if steps else [],
        "gap": gap.get("mean") if isinstance(gap, dict) else None,
        "version": report.get("version"),
        "seconds": report.get("seconds"),
    }


def update_curves(updates: Sequence[tuple[str, Mapping[str, JsonValue]]]) -> list[Chart]:
    """The figures of optimizer steps, one after the other over all updates; what nobody measured has no chart."""
    steps = [
        (f"{name} {number}", step)
        for name, report in updates
        for number, step in enumerate(_list(report.get("steps")), start=1)
        if isinstance(step, dict)
    ]
    charts = []
    for key, title in _CURVES:
        points = [_plain(_number(step.get(key))) for _, step in steps]
        if sum(point is not None for point in points) > 1:
            note = "one point an optimizer step"
            charts.append(line_chart(title, [name for name, _ in steps], [Series(title, points)], note=note))
    return [chart for chart in charts if chart is not None]


def kept_evaluations(kept: Mapping[str, Mapping[str, JsonValue]]) -> list[dict[str, object]]:
    """The evaluations that a run keeps, with the intervals of their bootstrap."""
    return [_evaluation(name, one) for name, one in kept.items()]


def _evaluation(name: str, one: Mapping[str, JsonValue]) -> dict[str, object]:
    ks = one.get("pass_at_k")
    told = {str(k): _number(value) for k, value in ks.items()} if isinstance(ks, dict) else {}
    notes = [str(note) for note in _list(one.get("notes"))]
    power, stability = one.get("power"), one.get("stability")
    if isinstance(power, dict):
        notes += _power(power)
    if isinstance(stability, dict):
        flips = len(_list(stability.get("flipping")))
        notes.append(f"{flips} tasks flip over {stability.get('repeats')} repeats")
    return {
        "name": name,
        "version": one.get("policy_version"),
        "tasks": one.get("tasks"),
        "pass_at_1": _estimate(one.get("pass_at_1")),
        "pass_at_k": {k: value for k, value in told.items() if k != "1"},
        "reward": _number(one.get("mean_reward")),
        "steps": _number(one.get("mean_steps")),
        "tokens": _number(one.get("mean_tokens")),
        "valid": _number(one.get("valid_action_rate")),
        "lost": one.get("infra_failures"),
        "notes": notes,
    }


def _power(power: Mapping[str, JsonValue]) -> list[str]:
    """How many tasks it takes to see a difference, and how small a one these can see."""
    needed, difference = power.get("tasks_needed"), _number(power.get("difference"))
    smallest = _number(power.get("smallest"))
    told = [f"{needed} tasks show a difference of {difference:.0%}"] if needed is not None and difference else []
    return told + ([f"these show one of {smallest:.0%}"] if smallest is not None else [])


def _estimate(value: JsonValue) -> Spread | None:
    if not isinstance(value, dict):
        return None
    middle, low, high = (_number(value.get(name)) for name in ("value", "low", "high"))
    tasks = value.get("tasks")
    return Spread(middle, low, high, tasks if isinstance(tasks, int) else 0) if middle is not None else None


def expected(run: OpenedRun) -> int | None:
    """How many attempts the run is to have, where its settings say so."""
    manifest = run.files.manifest
    samples = manifest.config.get("samples") if manifest is not None else None
    if manifest is None or manifest.command not in ("rollout", "eval") or not isinstance(samples, int):
        return None
    return samples * len(manifest.task_hashes)


def _number(value: JsonValue) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []
