"""Attempts with a known story: some solve their task, and what can be seen of that is set."""

import random
from collections.abc import Sequence

from patchgym.records import Action, Observation, Outcome, Step, Trajectory, Verdict
from tests.records_for_tests import make_report, make_step, make_trajectory


def step(
    index: int,
    tool: str = "list_files",
    *,
    before: str | None = "s0",
    after: str | None = "s0",
    tests: dict[str, Outcome] | None = None,
    changed: tuple[str, ...] | None = (),
    ok: bool | None = True,
    shown: str = "",
    **arguments: str,
) -> Step:
    """One step, as bare as its arguments say."""
    return make_step(index).model_copy(
        update={
            "action": Action(tool=tool, arguments=dict(arguments)),
            "observation": Observation(shown=shown, ok=ok, tests=tests, seconds=0.1),
            "state_before": before,
            "state_after": after,
            "changed_paths": changed,
        }
    )


def ran_tests(index: int, *, passing: int, failing: int, state: str = "s0") -> Step:
    """A test run: the tests ``t0``, ``t1``, ... of which the first ``passing`` pass."""
    outcomes = {f"t{at}": Outcome.PASSED if at < passing else Outcome.FAILED for at in range(passing + failing)}
    return step(index, "run_tests", before=state, after=state, tests=outcomes)


def edited(index: int, path: str, before: str, after: str) -> Step:
    """A change of one file."""
    return step(index, "edit_file", before=before, after=after, changed=(path,), path=path, old="a", new="b")


def attempt(sample: int, steps: Sequence[Step], *, solved: bool, task: str = "demo-1") -> Trajectory:
    """A graded attempt."""
    report = make_report(Verdict.RESOLVED if solved else Verdict.UNRESOLVED, fixed=(2, 2) if solved else (0, 2))
    return make_trajectory(sample, task_id=task, steps=steps, report=report, reward=float(solved))


def telling_attempts(tasks: int = 8, samples: int = 6, seed: int = 0, clear: float = 0.9) -> list[Trajectory]:
    """Attempts of which tests that pass at the end tell the outcome, in a share ``clear`` of the cases."""
    dice = random.Random(seed)
    found = []
    for task in range(tasks):
        for sample in range(samples):
            solved = dice.random() < 0.5
            good = solved if dice.random() < clear else not solved
            steps = [ran_tests(0, passing=0, failing=2)]
            for turn in range(dice.randint(0, 4)):
                steps.append(step(len(steps), "read_file", path=f"f{turn}.py", shown="x" * dice.randint(1, 99)))
            state = f"{task}-{sample}"
            steps.append(edited(len(steps), "src.py", "s0", state))
            steps.append(ran_tests(len(steps), passing=2 if good else 0, failing=0 if good else 2, state=state))
            found.append(attempt(sample, steps, solved=solved, task=f"task-{task}"))
    return found
