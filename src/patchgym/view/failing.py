"""Why attempts failed, from a run's index: how many by each type, and its share as a mean over tasks.

Shares are of attempts whose outcome is told: solved, or failed by a type. What infrastructure lost is counted and in no
share. Intervals are those of ``patchgym.evaluate``, by bootstrap over tasks: most types are rare, and Student's
interval of a rare share would reach below 0.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from patchgym.evaluate.bootstrap import mean_estimate
from patchgym.view.charts import Chart, Series, line_chart
from patchgym.view.figures import Spread

_DRAWS = 2000
"""Of the bootstrap: a fifth of an evaluation's, for a page is asked for often."""
_REMEMBERED = 4096
_LINES = 4


class Failing(NamedTuple):
    """Why the attempts of one phase, or of one run, failed. ``counts`` is by type, and so is ``shares``, of the types
    that are a policy's doing."""

    name: str
    attempts: int
    counts: dict[str, int]
    shares: dict[str, Spread]


class _Row(NamedTuple):
    """Attempts at a task in a phase that came out alike."""

    phase: str
    task: str
    solved: int | None
    failure: str | None
    attempts: int


@dataclass
class _Gathered:
    """Attempts, those that failed by type, and by task the told outcomes (None: solved)."""

    attempts: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    told: dict[str, Counter[str | None]] = field(default_factory=dict)

    def add(self, row: _Row) -> None:
        self.attempts += row.attempts
        if row.failure is not None:
            self.counts[row.failure] += row.attempts
        if row.solved == 1 or (row.solved == 0 and row.failure is not None):
            self.told.setdefault(row.task, Counter())[row.failure] += row.attempts

    def named(self, name: str) -> Failing:
        return Failing(name, self.attempts, dict(self.counts), _shares(list(self.told.values())))


def failing_phases(connection: sqlite3.Connection) -> list[Failing]:
    """Every phase, in the order in which they began."""
    found: dict[str, _Gathered] = {}
    for row in _rows(connection):
        found.setdefault(row.phase, _Gathered()).add(row)
    return [gathered.named(phase) for phase, gathered in found.items()]


def failing_run(connection: sqlite3.Connection, name: str) -> Failing:
    """All phases of a run together under its ``name``, demonstrations left out."""
    found = _Gathered()
    for row in _rows(connection):
        if not row.phase.startswith("demonstrate"):
            found.add(row)
    return found.named(name)


def _rows(connection: sqlite3.Connection) -> Iterator[_Row]:
    columns = "phase, task, solved, failure"
    text = f"SELECT {columns}, count(*) FROM attempts GROUP BY {columns} ORDER BY min(rowid)"
    return (_Row(*row) for row in connection.execute(text))


def _shares(tasks: Sequence[Counter[str | None]]) -> dict[str, Spread]:
    kinds = dict.fromkeys(kind for told in tasks for kind in told if kind is not None)
    return {kind: _interval(tuple(sorted(told[kind] / told.total() for told in tasks))) for kind in kinds}


@lru_cache(maxsize=_REMEMBERED)
def _interval(shares: tuple[float, ...]) -> Spread:
    """The mean of the tasks' shares. A phase that is done has the same ones each time that its page is asked for."""
    found = mean_estimate(shares, (0.0, 1.0), draws=_DRAWS)
    return Spread(found.value, found.low, found.high, found.tasks)


def failure_kinds(found: Sequence[Failing]) -> list[str]:
    """The types of failure that occur, the most common first."""
    totals: Counter[str] = Counter()
    for one in found:
        totals.update(one.counts)
    return [kind for kind, _ in totals.most_common()]


def failure_chart(found: Sequence[Failing]) -> Chart | None:
    """The most common types over the phases in which a policy was sampled; None where there are not two."""
    sampled = [one for one in found if not one.name.startswith(("eval", "demonstrate"))]
    kinds = [kind for kind in failure_kinds(sampled) if any(kind in one.shares for one in sampled)][:_LINES]
    if len(sampled) < 2:
        return None
    return line_chart(
        "Why attempts failed",
        [one.name for one in sampled],
        [Series(kind.replace("_", " "), [_share(one, kind) for one in sampled]) for kind in kinds],
        percent=True,
        note="the most common types, 95% interval over tasks",
    )


def _share(one: Failing, kind: str) -> Spread | None:
    """Its share; 0 where others occurred and this one did not, None where no outcome is told."""
    tasks = next((share.tasks for share in one.shares.values()), 0)
    return one.shares.get(kind) or (_interval((0.0,) * tasks) if tasks else None)
