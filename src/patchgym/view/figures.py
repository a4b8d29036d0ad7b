"""What a run's attempts come to, phase by phase, from its index.

Attempts at one task depend on each other, so means are of tasks' means, and an interval is over tasks: mean plus or
minus Student's t at 97.5% times the standard error (Cornish-Fisher's expansion of t, Abramowitz and Stegun 26.7.5). It
is quick enough for a page; ``patchgym eval`` gives the bootstrap's interval, which is shown where the run holds it. Why
attempts failed is in ``failing``.
"""

import math
import sqlite3
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

_Z = NormalDist().inv_cdf(0.975)
_LEAST_TASKS = 3
BINS = 11
"""Bins of a histogram of rewards: one for 0, ten from there up to 1."""


class Spread(NamedTuple):
    """A mean over tasks with its 95% interval; None ends where there are too few tasks for one."""

    value: float
    low: float | None
    high: float | None
    tasks: int


class Phase(NamedTuple):
    """One phase of a run. None: not measured."""

    name: str
    measures: bool
    """Whether it measures the policy; else it samples what is trained on."""
    attempts: int
    tasks: int
    lost: int
    """Attempts without a verdict, for infrastructure failed or nobody graded."""
    solved: Spread | None
    solved_train: Spread | None
    solved_heldout: Spread | None
    reward: Spread | None
    steps: Spread | None
    tokens: Spread | None
    readable: float | None
    """Share of steps whose action could be read."""
    hacked: float | None
    """Share of graded attempts with proof of tampering."""
    hacked_over: Spread | None
    """The same as a mean over tasks, with its interval."""
    marked: float | None
    """Share with something for a person to look at."""
    marked_over: Spread | None
    """The same as a mean over tasks, with its interval."""
    gap: float | None
    """Share of visible failing tests that pass, less that of hidden ones."""


def phases(connection: sqlite3.Connection) -> list[Phase]:
    """Every phase, in the order in which they began."""
    found: dict[str, list[sqlite3.Row]] = {}
    query = """
        SELECT phase, task, split, count(*) AS attempts, count(solved) AS graded, avg(solved) AS solved,
               avg(reward) AS reward, avg(steps) AS steps, avg(tokens) AS tokens, sum(steps) AS all_steps,
               sum(readable) AS readable, sum(solved IS NOT NULL AND hacked) AS hacked,
               sum(solved IS NOT NULL AND marks > 0) AS marked,
               avg(CASE WHEN solved IS NOT NULL THEN hacked END) AS hack_rate,
               avg(CASE WHEN solved IS NOT NULL THEN marks > 0 END) AS mark_rate,
               avg(CASE WHEN hidden IS NOT NULL THEN visible - hidden END) AS gap, min(rowid) AS first
        FROM attempts GROUP BY phase, task ORDER BY first
    """
    for row in connection.execute(query):
        found.setdefault(row["phase"], []).append(row)
    return [_phase(name, rows) for name, rows in found.items()]


class Summary(NamedTuple):
    """A run in a line. Demonstrations count as attempts and are in no mean."""

    attempts: int
    tasks: int
    steps: Spread | None
    reward: Spread | None
    solved: Spread | None
    """pass@1 of its last evaluation; where it has none, of all its attempts."""
    hacked: float | None


def summary(connection: sqlite3.Connection) -> Summary:
    """What a table of runs says of one."""
    attempts, tasks, hacked, graded = connection.execute(
        "SELECT count(*), count(DISTINCT task), sum(solved IS NOT NULL AND hacked), count(solved) FROM attempts"
    ).fetchone()
    text = "SELECT avg(steps), avg(reward) FROM attempts WHERE phase NOT LIKE 'demonstrate%' GROUP BY task"
    rows = connection.execute(text).fetchall()
    last = connection.execute(
        "SELECT phase FROM attempts WHERE phase LIKE 'eval%' ORDER BY rowid DESC LIMIT 1"
    ).fetchone()
    chosen = "phase = ?" if last is not None else "phase NOT LIKE ?"
    of_last = (last[0],) if last is not None else ("demonstrate%",)
    solved = connection.execute(f"SELECT avg(solved) FROM attempts WHERE {chosen} GROUP BY task", of_last).fetchall()
    return Summary(
        attempts=attempts,
        tasks=tasks,
        steps=spread([row[0] for row in rows]),
        reward=_rewards([row[1] for row in rows]),
        solved=spread([row[0] for row in solved], within=(0.0, 1.0)),
        hacked=hacked / graded if graded else None,
    )


def _phase(name: str, rows: Sequence[sqlite3.Row]) -> Phase:
    attempts, graded = sum(row["attempts"] for row in rows), sum(row["graded"] for row in rows)
    steps = sum(row["all_steps"] for row in rows)
    sides = {side: [row["solved"] for row in rows if row["split"] == side] for side in ("train", "heldout")}
    gaps = [row["gap"] for row in rows if row["gap"] is not None]
    return Phase(
        name=name,
        measures=name.startswith("eval"),
        attempts=attempts,
        tasks=len(rows),
        lost=attempts - graded,
        solved=spread([row["solved"] for row in rows], within=(0.0, 1.0)),
        solved_train=spread(sides["train"], within=(0.0, 1.0)),
        solved_heldout=spread(sides["heldout"], within=(0.0, 1.0)),
        reward=_rewards([row["reward"] for row in rows]),
        steps=spread([row["steps"] for row in rows]),
        tokens=spread([row["tokens"] for row in rows]),
        readable=sum(row["readable"] or 0 for row in rows) / steps if steps else None,
        hacked=sum(row["hacked"] for row in rows) / graded if graded else None,
        hacked_over=spread([row["hack_rate"] for row in rows], within=(0.0, 1.0)),
        marked_over=spread([row["mark_rate"] for row in rows], within=(0.0, 1.0)),
        marked=sum(row["marked"] for row in rows) / graded if graded else None,
        gap=fmean(gaps) if gaps else None,
    )


def _rewards(means: Sequence[float | None]) -> Spread | None:
    """Rewards are from 0 to 1 unless a recipe says otherwise, and so are the ends of their intervals."""
    usual = all(value is None or 0 <= value <= 1 for value in means)
    return spread(means, within=(0.0, 1.0) if usual else None)


def spread(means: Sequence[float | None], within: tuple[float, float] | None = None) -> Spread | None:
    """The mean of tasks' means with its interval; None where no task has one."""
    known = [value for value in means if value is not None]
    if not known:
        return None
    value = fmean(known)
    if len(known) < _LEAST_TASKS:
        return Spread(value, None, None, len(known))
    half = student(len(known) - 1) * stdev(known) / math.sqrt(len(known))
    low, high = value - half, value + half
    if within is not None:
        low, high = max(within[0], low), min(within[1], high)
    return Spread(value, low, high, len(known))


def student(freedom: int) -> float:
    """Student's t at 97.5%, from two degrees of freedom on; within 1%."""
    if freedom == 2:
        return 0.95 * math.sqrt(2 / (1 - 0.95**2))
    z = _Z
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def reward_bins(connection: sqlite3.Connection, phase: str | None = None) -> list[tuple[str, int]]:
    """How many attempts have a reward of about so much: 0 or less apart, then tenths, the last with all above."""
    counts = [0] * BINS
    where, values = ("WHERE phase = ?", (phase,)) if phase is not None else ("", ())
    rows = connection.execute(f"SELECT reward, count(*) FROM attempts {where} GROUP BY reward", values)
    for reward, count in rows:
        if reward is not None:
            place = 0 if reward <= 1e-9 else min(BINS - 1, 1 + int((reward - 1e-9) * (BINS - 1)))
            counts[place] += count
    labels = ["0", *(f"≤{(place + 1) / (BINS - 1):.1f}" for place in range(BINS - 1))]
    return list(zip(labels, counts, strict=True))
