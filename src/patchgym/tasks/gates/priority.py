"""Which tasks come first: five rows of points, each with the reason for every point that it gives or withholds.

The rows are those by which one sorts candidates by hand: can it be checked, is it said what is wrong, can it be built
again, is the change small, is there a bound to how hard it is. A threshold on the sum, or on each row, keeps a task
out. Nothing here runs anything.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field

from patchgym.config import Settings
from patchgym.records import Record, Task
from patchgym.tasks.gates.description import describe

RowName = Literal["verifiable", "description", "reproducible", "scope", "difficulty"]


class PrioritySettings(Settings):
    """Thresholds of the priority score; every row has four points.

    ``least_points`` is what the five rows must sum up to, ``least_row`` what each of them must reach. ``max_files``,
    ``max_hunks`` and ``max_lines`` bound the patch that counts as small, ``max_words`` a readable statement,
    ``max_difficulty`` (0 to 1) and ``max_test_seconds`` a task that a policy can get anywhere with. With
    ``single_file_first``, tasks of one file come before all others, whatever their points.
    """

    least_points: int = Field(default=0, ge=0, le=20)
    least_row: int = Field(default=0, ge=0, le=4)
    max_files: int = Field(default=1, ge=1)
    max_hunks: int = Field(default=3, ge=1)
    max_lines: int = Field(default=30, ge=1)
    max_words: int = Field(default=400, ge=1)
    max_difficulty: float = Field(default=0.8, ge=0.0, le=1.0)
    max_test_seconds: float = Field(default=60.0, gt=0.0)
    single_file_first: bool = True


DEFAULTS = PrioritySettings()


class Point(Record):
    """One point, given or not, and why."""

    given: bool
    why: str


class Row(Record):
    """One row of the score."""

    name: RowName
    points: tuple[Point, ...]

    @property
    def total(self) -> int:
        """The points given."""
        return sum(point.given for point in self.points)


class Priority(Record):
    """A task's score: five rows of at most four points."""

    task: str
    single_file: bool
    rows: tuple[Row, ...]

    @property
    def total(self) -> int:
        """Between 0 and 20."""
        return sum(row.total for row in self.rows)


def priority_of(task: Task, settings: PrioritySettings = DEFAULTS) -> Priority:
    """The score of one task."""
    rows: tuple[tuple[RowName, Iterable[Point]], ...] = (
        ("verifiable", _verifiable(task)),
        ("description", _description(task, settings)),
        ("reproducible", _reproducible(task)),
        ("scope", _scope(task, settings)),
        ("difficulty", _difficulty(task, settings)),
    )
    return Priority(
        task=task.id,
        single_file=task.scope.files == 1,
        rows=tuple(Row(name=name, points=tuple(points)) for name, points in rows),
    )


def shortfalls(priority: Priority, settings: PrioritySettings) -> tuple[str, ...]:
    """Why a score is below the thresholds; empty where it is not."""
    found = [
        f"{row.name} has {row.total} of 4 points, {settings.least_row} are asked for"
        for row in priority.rows
        if row.total < settings.least_row
    ]
    if priority.total < settings.least_points:
        found.append(f"{priority.total} of 20 points, {settings.least_points} are asked for")
    return tuple(found)


def by_priority(tasks: Iterable[Task], settings: PrioritySettings = DEFAULTS) -> list[Task]:
    """Tasks, the best first: those of one file (where the settings say so), then by points, then as they came."""

    def key(task: Task) -> tuple[bool, int]:
        priority = priority_of(task, settings)
        return settings.single_file_first and not priority.single_file, -priority.total

    return sorted(tasks, key=key)


def _point(given: bool, yes: str, no: str) -> Point:
    return Point(given=given, why=yes if given else no)


def _verifiable(task: Task) -> Sequence[Point]:
    tests, proof = task.tests, task.validation
    score = proof.mutants.share_killed if proof is not None and proof.mutants is not None else None
    kept = len(tests.pass_to_pass)
    guard = (
        f"its tests kill {score:.0%} of the planted bugs" if score is not None else f"{kept} tests must stay passing"
    )
    return (
        _point(bool(tests.fail_to_pass), f"{len(tests.fail_to_pass)} tests decide", "no test decides"),
        _point(bool(tests.hidden), f"{len(tests.hidden)} of them are hidden", "none of them is hidden"),
        _point(proof is not None and proof.proved, "it is proved by running", "it is not proved"),
        _point(score >= 0.5 if score is not None else kept > 0, guard, guard),
    )


def _description(task: Task, settings: PrioritySettings) -> Sequence[Point]:
    told = describe(task)
    return (
        _point(bool(told.place), f"it names {told.place}", "it names no module, function or test"),
        _point(bool(told.symptom), f'it says what goes wrong ("{told.symptom}")', "it does not say what goes wrong"),
        _point(not told.vague and told.words > 0, "it is no mere wish", f'it is a mere wish ("{told.vague}")'),
        _point(
            4 <= told.words <= settings.max_words, f"{told.words} words", f"{told.words} words: too few or too many"
        ),
    )


def _reproducible(task: Task) -> Sequence[Point]:
    environment, proof = task.environment, task.validation
    image = environment.image or ""
    locked = "--hash=sha256:" in environment.lock or "@sha256:" in image or bool(environment.dockerfile)
    stated = bool(environment.python or image or environment.dockerfile)
    runs = proof.runs if proof is not None else 0
    steady = proof is not None and runs >= 2 and not proof.flaky
    shaky = f"{len(proof.flaky)} tests were flaky" if proof is not None and proof.flaky else f"{runs} runs prove little"
    return (
        _point(locked, "its environment is locked", "its environment is not locked by hashes"),
        _point(stated, f"Python {environment.python or 'of its image'}", "no Python is stated"),
        _point(task.network == "none", "it needs no network", "it needs the network"),
        _point(steady, f"{runs} runs agreed", shaky),
    )


def _scope(task: Task, settings: PrioritySettings) -> Sequence[Point]:
    scope, most = task.scope, settings
    apart = len({path.partition("/")[0] for path in task.key_files})
    return (
        _point(scope.files <= most.max_files, f"{scope.files} files", f"{scope.files} files, over {most.max_files}"),
        _point(scope.hunks <= most.max_hunks, f"{scope.hunks} hunks", f"{scope.hunks} hunks, over {most.max_hunks}"),
        _point(
            0 < scope.lines <= most.max_lines,
            f"{scope.lines} lines",
            f"{scope.lines} lines, none or over {most.max_lines}",
        ),
        _point(apart <= 1, "in one place", f"spread over {apart} top folders"),
    )


def _difficulty(task: Task, settings: PrioritySettings) -> Sequence[Point]:
    estimate, proof = task.difficulty, task.validation
    seconds = proof.test_seconds if proof is not None else task.tests.timeout_s
    bounded = estimate is not None and estimate.score <= settings.max_difficulty
    score = f"estimated at {estimate.score:.2f}" if estimate is not None else "not estimated"
    shown = len(task.view().failing_tests)
    return (
        _point(estimate is not None, score, score),
        _point(bounded, f"at most {settings.max_difficulty}", f"no estimate, or over {settings.max_difficulty}"),
        _point(shown > 0, f"{shown} failing tests are shown", "no failing test is shown"),
        _point(
            seconds <= settings.max_test_seconds,
            f"its tests take {seconds:.1f} s",
            f"its tests take {seconds:.1f} s, over {settings.max_test_seconds:.0f}",
        ),
    )
