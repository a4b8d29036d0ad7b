"""Which task an attempt of a log is at."""

from datetime import timedelta

import pytest

from patchgym.evaluate.belonging import Belonging, Belongs, NoAttempt
from patchgym.evaluate.taken import Taking
from patchgym.records import Origin, Source, SpawnedBy, Task, Timing, Trajectory
from tests.records_for_tests import THEN, make_task, make_trajectory

COMMIT = "8fd6e40c1b2a39587766554433221100ffeeddcc"


def task(name: str, *, commit: str = COMMIT, session: str = "", repo: str = "acme/calc") -> Task:
    change = f"the patch of session {session}" if session else "one commit"
    source = Source(kind="log" if session else "git", repo=repo, base_commit=commit, change=change)
    return make_task(name).model_copy(update={"source": source})


def log(
    name: str = "s1", *, commit: str | None = COMMIT, repo: str | None = "https://github.com/Acme/calc.git"
) -> Trajectory:
    origin = Origin(format="claude_code", file="s.jsonl", session=name, repo=repo, base_commit=commit)
    return make_trajectory().model_copy(update={"id": name, "task_id": name, "origin": origin})


def found(trajectory: Trajectory, *tasks: Task) -> Belongs | NoAttempt:
    return Belonging(tasks, tasks).of(trajectory)


def test_a_trajectory_that_names_a_task_is_at_it() -> None:
    one = task("calc-1")
    assert found(log().model_copy(update={"task_id": "calc-1"}), one) == Belongs(one, own=False)


@pytest.mark.parametrize("commit", [COMMIT, COMMIT[:7], COMMIT[:12]])
@pytest.mark.parametrize("repo", ["https://github.com/Acme/calc.git", "git@github.com:acme/calc", "calc", None])
def test_a_log_is_at_the_task_that_begins_where_it_began(commit: str, repo: str | None) -> None:
    one = task("calc-1")
    assert found(log(commit=commit, repo=repo), one) == Belongs(one, own=False)


@pytest.mark.parametrize(
    ("commit", "repo"),
    [("0" * 40, "acme/calc"), (COMMIT, "acme/other"), (COMMIT[:6], "acme/calc"), (None, "acme/calc")],
)
def test_a_log_that_began_elsewhere_is_at_none(commit: str | None, repo: str) -> None:
    assert found(log(commit=commit, repo=repo), task("calc-1")) is NoAttempt.NO_TASK


def test_of_several_tasks_of_one_commit_none_is_guessed() -> None:
    assert found(log(), task("calc-1"), task("calc-2")) is NoAttempt.SEVERAL


def test_a_task_that_was_made_of_a_session_is_told_by_it() -> None:
    own = task("calc-2", session="s1")
    assert found(log(), task("calc-1"), own) == Belongs(own, own=True)


def test_a_sub_agent_is_no_attempt() -> None:
    one = task("calc-1")
    assert (
        found(log().model_copy(update={"spawned_by": SpawnedBy(trajectory="s0", step=None)}), one)
        is NoAttempt.SUB_AGENT
    )


def test_the_same_log_again_is_no_second_attempt() -> None:
    belonging = Belonging([task("calc-1")], [task("calc-1")])
    assert isinstance(belonging.of(log()), Belongs)
    assert belonging.of(log()) is NoAttempt.DUPLICATE


def test_another_attempt_that_did_the_same_counts() -> None:
    belonging = Belonging([task("calc-1")], [task("calc-1")])
    later = log().model_copy(update={"duplicate_of": "s1", "timing": Timing(started_at=THEN + timedelta(hours=1))})
    untimed = log().model_copy(update={"duplicate_of": "s1", "timing": Timing()})
    assert all(isinstance(belonging.of(one), Belongs) for one in (log(), later, untimed, untimed))


def test_attempts_at_one_task_that_an_import_numbered_are_at_it() -> None:
    one, elsewhere = task("calc-1"), log(commit="0" * 40)
    named = elsewhere.model_copy(update={"id": "calc-1~2", "task_id": "calc-1~2"})
    assert found(named, one) == Belongs(one, own=False)


def test_a_task_that_was_not_asked_for_is_told_apart() -> None:
    assert Belonging([task("calc-1")], []).of(log()) is NoAttempt.NOT_ASKED


def test_attempts_are_numbered_within_their_tasks() -> None:
    tasks = [task("calc-1"), task("calc-2", commit="1" * 40)]
    taking = Taking(tasks, tasks, "rollout")
    logs = [log("s1"), log("s2", commit="1" * 40), log("s3"), log("s4", commit="2" * 40)]
    taken = [(one.id, one.task_id, one.sample_index, one.group_id) for one, _ in taking.attempts(logs)]
    assert taken == [
        ("s1", "calc-1", 0, "rollout/calc-1"),
        ("s2", "calc-2", 0, "rollout/calc-2"),
        ("s3", "calc-1", 1, "rollout/calc-1"),
    ]
    assert taking.left_out == {NoAttempt.NO_TASK: 1}


def test_what_is_to_be_known_of_attempts_is_said() -> None:
    tasks = [task("calc-1", session="s1")]
    taking = Taking(tasks, tasks, "rollout")
    list(taking.attempts([log("s1").model_copy(update={"final_patch": None}), log("s2", commit="0" * 40)]))
    told = " ".join(taking.notes())
    assert "Left out, 1: trajectories that name no task of the set" in told
    assert "the sessions that their tasks were made of" in told
    assert "no patch that could be graded" in told
