"""One attempt: how it ended and why, its reward term by term, its tests, its patch, and its steps a page at a time."""

from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import NamedTuple

from patchgym.records import Outcome, Reward, Step, Trajectory
from patchgym.records.outcome import evidence_against
from patchgym.reward import settle
from patchgym.view.diffs import patch_files
from patchgym.view.opened import OpenedRun
from patchgym.view.pages.attempts import neighbours
from patchgym.view.query import Query
from patchgym.view.site import Site
from patchgym.view.text import cut, one_line
from patchgym.view.treedrawing import asked_for

STEPS = 100
_TESTS = 60
_GROUP = 64
_GROUP_BYTES = 24 << 20
_LOG = 8_000
_KEPT_FILTERS = (
    "phase",
    "task",
    "policy",
    "split",
    "verdict",
    "failure",
    "stop",
    "gate",
    "evidence",
    "q",
    "min",
    "max",
)


class StepLine(NamedTuple):
    """A step in the list."""

    step: Step
    asked: str
    came: str
    bad: bool
    facts: Sequence[str]
    """How the process ended, and after how long."""


class TestLine(NamedTuple):
    """A test: what became of it, and which part it has in the verdict."""

    name: str
    outcome: Outcome
    part: str


class Group(NamedTuple):
    """The attempt's reward among those of its group, once the group's second layer is settled."""

    reward: Reward | None
    members: int
    mean: float | None
    deviation: float | None
    advantage: float | None
    """Its reward less the group's mean."""


def attempt_page(site: Site, run: OpenedRun, query: Query) -> tuple[str, dict[str, object]]:
    """The page of one attempt."""
    name = query.needed("id")
    trajectory = run.trajectory(name)
    before, after = neighbours(run, name, query)
    pages = max(1, -(-len(trajectory.steps) // STEPS))
    page = min(query.number("steps", 1, 1), pages)
    report = trajectory.report
    return "attempt.html", {
        **facts(run, trajectory),
        "query": query,
        "filters": kept_filters(query),
        "before": before,
        "after": after,
        "steps": [step_line(step) for step in trajectory.steps[STEPS * (page - 1) : STEPS * page]],
        "page_number": page,
        "pages": pages,
        "tests": tests_of(run, trajectory),
        "tests_shown": _TESTS if not query.text("tests") else 10**6,
        "log": cut(report.log, _LOG) if report is not None and report.log else None,
    }


def facts(run: OpenedRun, trajectory: Trajectory) -> dict[str, object]:
    """What the page and the static report both show of an attempt."""
    return {
        "attempt": trajectory,
        "task": run.tasks.get(trajectory.task_id),
        "group": group_of(run, trajectory),
        "evidence": evidence_against(trajectory),
        "patch": patch_files(trajectory.final_patch) if trajectory.final_patch else None,
        "tokens": _tokens(trajectory),
        "redacted": sum(trajectory.redacted.values()) if trajectory.redacted else 0,
    }


def kept_filters(query: Query) -> dict[str, str]:
    """The filters of the list that one came from, for links back to it."""
    names = (*_KEPT_FILTERS, "sort", "order")
    return {name: query.text(name) for name in names if query.text(name)}


def step_line(step: Step) -> StepLine:
    """A step in a line."""
    seen = step.observation
    if seen is None:
        came = "(no answer)" if step.action is not None else ""
        return StepLine(step, asked_for(step), came, step.action is None, ())
    words = [] if seen.ok or seen.ok is None else ["refused"]
    words += ["interrupted"] if seen.ending == "interrupted" else ["timed out"] if seen.timed_out else []
    words += [f"exit {seen.exit_code}"] if seen.exit_code is not None else []
    told = f"{', '.join(words)}: " if words else ""
    bad = step.action is None or seen.ok is False or seen.timed_out
    facts = [f"exit code {seen.exit_code}"] if seen.exit_code is not None else []
    facts += [seen.ending.replace("_", " ")] if seen.ending != "none" else []
    facts += [f"{seen.seconds:.2f} s"] if seen.seconds is not None else []
    return StepLine(step, asked_for(step), told + one_line(seen.shown), bad, facts)


def tests_of(run: OpenedRun, trajectory: Trajectory) -> list[TestLine]:
    """The tests of its report: what had to be fixed first, then what went wrong."""
    if trajectory.report is None:
        return []
    task = run.tasks.get(trajectory.task_id)
    parts: dict[str, str] = {}
    if task is not None:
        parts |= dict.fromkeys(task.tests.pass_to_pass, "must stay passing")
        parts |= dict.fromkeys(task.tests.fail_to_pass, "to be fixed")
        parts |= dict.fromkeys(task.tests.hidden, "to be fixed, hidden")
    lines = [TestLine(name, outcome, parts.get(name, "")) for name, outcome in trajectory.report.tests.items()]
    return sorted(lines, key=lambda line: (not line.part.startswith("to be"), line.outcome is Outcome.PASSED))


def group_of(run: OpenedRun, trajectory: Trajectory) -> Group:
    """Where it stands in its group."""
    with run.index.open() as connection:
        query = "SELECT id, bytes, reward, baseline FROM attempts WHERE grp = ? ORDER BY sample LIMIT ?"
        rows = connection.execute(query, (trajectory.group_id, _GROUP)).fetchall()
    rewards = {row["id"]: row["reward"] for row in rows if row["baseline"]}
    reward = trajectory.reward
    if reward is not None and reward.second_layer == "waits" and sum(row["bytes"] for row in rows) <= _GROUP_BYTES:
        members = [_light(run.trajectory(row["id"])) for row in rows]
        settled = {one.id: one for one in settle(members)}
        rewards = {name: _value(settled[name]) for name in rewards if name in settled}
        mine = settled.get(trajectory.id)
        reward = mine.reward if mine is not None else reward
    known = [value for value in rewards.values() if value is not None]
    mean = fmean(known) if known else None
    own = reward.value if reward is not None else None
    return Group(
        reward=reward,
        members=len(rows),
        mean=mean,
        deviation=pstdev(known) if len(known) > 1 else None,
        advantage=own - mean if own is not None and mean is not None and len(known) > 1 else None,
    )


def _light(one: Trajectory) -> Trajectory:
    return one.model_copy(update={"steps": ()})


def _value(one: Trajectory) -> float | None:
    return one.reward.value if one.reward is not None else None


def _tokens(one: Trajectory) -> int | None:
    counts = [step.usage.sampled_tokens for step in one.steps if step.usage is not None]
    return sum(counts) if len(counts) == len(one.steps) else None
