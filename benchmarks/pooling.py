"""What several seeds of a closed loop came to together.

Held-out tasks are the same for every seed, and the attempts of all seeds at a task are its samples: intervals and
differences are by task, as everywhere (``patchgym.evaluate``). They tell how sure the figures are on other tasks. How
much another seed would change stands beside them: every seed's own figure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from patchgym.evaluate import Estimate, EvalReport, FailureType, failure_type, pass_at_each
from patchgym.evaluate.bootstrap import ratio_estimates
from patchgym.evaluate.estimates import paired_difference
from patchgym.evaluate.kept import read_evaluation
from patchgym.records import Task, Trajectory
from patchgym.rollout import count_run
from patchgym.store import RunDirectory
from patchgym.train import UpdateReport

BASE, WARM, RL = "eval-base", "eval-warm", "eval-final"
NAMES = {BASE: "before", WARM: "after warm start", RL: "after RL"}
STEPS = (("warm start", BASE, WARM), ("RL", WARM, RL), ("both", BASE, RL))
ROUND, AFTER = "round-", "eval-round-"

Told = dict[str, Any]
Outcomes = dict[str, list[bool]]
"""Task ids to the outcomes of all their valid attempts."""


def pool(runs: Mapping[int, RunDirectory]) -> Told:
    """The figures of these seeds. What was not measured is None, and a seed that is not done counts where it is."""
    reports = {seed: evaluations(run) for seed, run in runs.items()}
    tasks: dict[str, Task] = {}
    for run in runs.values():
        tasks |= run.tasks()
    rounds = {seed: rounds_of(run) for seed, run in runs.items()}
    return {
        "seeds": list(runs),
        "done": [seed for seed, found in reports.items() if RL in found],
        "held_out": held_out(reports, tasks),
        "valid_actions": {phase: valid_actions(runs.values(), phase) for phase in NAMES},
        "differences": {name: difference(reports, before, after, tasks) for name, before, after in STEPS},
        "curve": curve(rounds, reports),
        "training": {str(seed): gain(found) for seed, found in rounds.items()},
        "lost": lost(runs.values(), tasks),
    }


def evaluations(run: RunDirectory) -> dict[str, EvalReport]:
    """The held-out evaluations that a run keeps, by phase."""
    return {phase: read_evaluation(path) for phase, path in run.evaluations().items()}


def together(reports: Iterable[EvalReport | None]) -> Outcomes:
    """The outcomes of all seeds by task."""
    found: Outcomes = {}
    for report in reports:
        for task, outcomes in (report.solved if report is not None else {}).items():
            found.setdefault(task, []).extend(outcomes)
    return found


def held_out(reports: Mapping[int, Mapping[str, EvalReport]], tasks: Mapping[str, Task]) -> Told:
    """By phase: pass@k of all seeds, pass@1 of each, and pass@1 by kind of task where there are several."""
    found: Told = {}
    for phase in NAMES:
        outcomes = together(by_phase.get(phase) for by_phase in reports.values())
        each = pass_at_each(outcomes)
        kinds = sorted({tasks[task].source.kind for task in outcomes})
        found[phase] = {
            "pass_at": {str(one.k): shown(one.estimate) for one in each if one.k & (one.k - 1) == 0},
            "by_seed": {
                str(seed): one.value
                for seed, by_phase in reports.items()
                if phase in by_phase and (one := by_phase[phase].pass_at_1) is not None
            },
            "by_kind": {kind: shown_first(of_kind(outcomes, tasks, kind)) for kind in kinds} if len(kinds) > 1 else {},
        }
    return found


def of_kind(outcomes: Outcomes, tasks: Mapping[str, Task], kind: str) -> Outcomes:
    """The outcomes at the tasks of one kind."""
    return {task: found for task, found in outcomes.items() if tasks[task].source.kind == kind}


def shown_first(outcomes: Outcomes) -> Told | None:
    """pass@1 of these outcomes."""
    each = pass_at_each(outcomes, most=1)
    return shown(each[0].estimate) if each else None


def difference(
    reports: Mapping[int, Mapping[str, EvalReport]], before: str, after: str, tasks: Mapping[str, Task]
) -> Told:
    """pass@1 of ``after`` less that of ``before``, paired by task, over the seeds that have both; and of each seed."""
    both = {seed: found for seed, found in reports.items() if before in found and after in found}
    old, new = (together(found[phase] for found in both.values()) for phase in (before, after))
    kinds = sorted({tasks[task].source.kind for task in old})
    return {
        "pooled": shown(paired_difference(old, new)),
        "by_seed": {
            str(seed): shown(paired_difference(found[before].solved, found[after].solved))
            for seed, found in both.items()
        },
        "by_kind": {
            kind: shown(paired_difference(of_kind(old, tasks, kind), of_kind(new, tasks, kind))) for kind in kinds
        }
        if len(kinds) > 1
        else {},
    }


def valid_actions(runs: Iterable[RunDirectory], phase: str) -> Told | None:
    """The share of steps whose action could be read, over the attempts of a phase of all seeds, by task."""
    readable: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    for run in runs:
        for one in run.phase(phase):
            if one.status == "completed":
                steps[one.task_id] += len(one.steps)
                readable[one.task_id] += sum(step.action is not None for step in one.steps)
    if not steps:
        return None
    names = list(steps)
    (found,) = ratio_estimates([[readable[name]] for name in names], [[steps[name]] for name in names], (0.0, 1.0))
    return shown(found)


def rounds_of(run: RunDirectory) -> list[Told]:
    """Each round of a seed: mean reward, share solved, share of readable actions, share of groups without variance, and
    the entropy of the policy's distributions before the update."""
    rows = [row for row in run.metrics() if row.get("kind") == "update"]
    updates = {row["name"]: UpdateReport.model_validate(row["report"]) for row in rows}
    found: list[Told] = []
    while attempts := run.phase(f"{ROUND}{len(found) + 1}"):
        counts = count_run(attempts)
        graded = counts.trajectories - counts.infra_error
        update = updates.get(f"{ROUND}{len(found) + 1}")
        flat = update.zero_variance_groups / update.groups if update is not None and update.groups else None
        found.append(
            {
                "reward": counts.mean_reward,
                "solved": counts.resolved / graded if graded else None,
                "valid": counts.valid_action_rate,
                "flat": flat,
                "entropy": update.steps[0].entropy if update is not None and update.steps else None,
            }
        )
    return found


def curve(rounds: Mapping[int, Sequence[Told]], reports: Mapping[int, Mapping[str, EvalReport]]) -> list[Told]:
    """Training against held-out, round by round, over the seeds that came so far; round 0 is after the warm start."""
    last = max((len(found) for found in rounds.values()), default=0)
    points: list[Told] = []
    for number in range(last + 1):
        here = [found[number - 1] for found in rounds.values() if 0 < number <= len(found)]
        phase = WARM if number == 0 else RL if number == last else f"{AFTER}{number}"
        measured = shown_first(together(by_phase.get(phase) for by_phase in reports.values()))
        points.append(
            {"round": number, **{key: mean_of(here, key) for key in ("reward", "solved", "valid", "flat", "entropy")}}
        )
        points[-1]["held_out"] = measured
    return points


def mean_of(rows: Sequence[Told], key: str) -> float | None:
    """The mean of what was measured."""
    values = [row[key] for row in rows if row[key] is not None]
    return fmean(values) if values else None


def gain(rounds: Sequence[Told]) -> Told:
    """Mean training reward of the first and of the last quarter of the rounds of a seed."""
    quarter = max(1, len(rounds) // 4)
    first, last = mean_of(rounds[:quarter], "reward"), mean_of(rounds[-quarter:], "reward")
    risen = last - first if first is not None and last is not None else None
    return {"rounds": len(rounds), "first": first, "last": last, "gain": risen}


def lost(runs: Iterable[RunDirectory], tasks: Mapping[str, Task]) -> Told:
    """How many attempts were proved hacks and how many infrastructure lost, in training and held-out."""
    found: Told = {}
    for side in ("training", "held_out"):
        kinds, count = Counter[FailureType](), 0
        for run in runs:
            for one in run.trajectories:
                if side_of(one) == side:
                    count += 1
                    kind = failure_type(one, tasks.get(one.task_id))
                    kinds.update([kind] if kind is not None else [])
        hacked, infra = kinds[FailureType.HACKED], kinds[FailureType.INFRASTRUCTURE]
        found[side] = {
            "attempts": count,
            "hacked": hacked,
            "infrastructure": infra,
            "hack_rate": hacked / count if count else None,
            "infrastructure_rate": infra / count if count else None,
            "failures": {kind.value: kinds[kind] for kind in FailureType if kinds[kind]},
        }
    return found


def side_of(one: Trajectory) -> str:
    """Where an attempt belongs; demonstrations nowhere."""
    return "training" if one.phase.startswith(ROUND) else "held_out" if one.phase.startswith("eval-") else ""


def shown(estimate: Estimate | None) -> Told | None:
    """An estimate as it is told."""
    return estimate.model_dump(mode="json") if estimate is not None else None


def tables(told: Told) -> str:
    """The figures for a person."""
    lines = [f"{told['recipe']}, seeds {', '.join(map(str, told['seeds']))} (done: {len(told['done'])})", ""]
    lines.append(f"{'held-out':18}{'pass@1':>26}{'valid actions':>26}  by seed")
    for phase, name in NAMES.items():
        found = told["held_out"][phase]
        seeds = " ".join(f"{value:.3f}" for value in found["by_seed"].values())
        first, valid = spelled(found["pass_at"].get("1")), spelled(told["valid_actions"][phase])
        lines.append(f"{name:18}{first:>26}{valid:>26}  {seeds}")
        lines += [f"  {kind:16}{spelled(one):>26}" for kind, one in found["by_kind"].items()]
        more = ", ".join(f"pass@{k} {one['value']:.3f}" for k, one in found["pass_at"].items() if k != "1")
        lines += [f"  {more}"] if more else []
    lines += ["", f"{'added by':18}{'points of pass@1':>26}  by seed"]
    for name, one in told["differences"].items():
        seeds = ", ".join(spelled(found, 100) for found in one["by_seed"].values())
        lines.append(f"{name:18}{spelled(one['pooled'], 100):>26}  {seeds}")
        lines += [f"  {kind:16}{spelled(found, 100):>26}" for kind, found in one["by_kind"].items()]
    lines += ["", f"{'round':>5}{'reward':>9}{'solved':>9}{'valid':>9}{'flat':>9}{'entropy':>9}  held-out pass@1"]
    for point in told["curve"]:
        cells = "".join(f"{figure(point[key]):>9}" for key in ("reward", "solved", "valid", "flat", "entropy"))
        lines.append(f"{point['round']:>5}{cells}  {spelled(point['held_out'])}")
    lines.append("")
    for seed, one in told["training"].items():
        time = told["time"][seed]
        took = f"{time['minutes']:.0f} min" if time is not None else "-"
        lines.append(f"seed {seed}: training reward {figure(one['first'])} -> {figure(one['last'])}, {took}")
    for side, one in told["lost"].items():
        rates = f"hacked {one['hacked']}, lost to infrastructure {one['infrastructure']}"
        lines.append(f"{side}: {one['attempts']} attempts, {rates}")
    return "\n".join(lines)


def figure(value: float | None) -> str:
    """A number, or a dash where it was not measured."""
    return "-" if value is None else f"{value:.3f}"


def spelled(one: Told | None, scale: float = 1.0) -> str:
    """An estimate with its interval."""
    if one is None:
        return "-"
    value, low, high = (scale * one[key] for key in ("value", "low", "high"))
    digits, sign = (1, "+") if scale > 1 else (3, "")
    return f"{value:{sign}.{digits}f} ({low:{sign}.{digits}f} to {high:{sign}.{digits}f})"
