"""Replay: steps that reproduce are told from those that do not, with the reason."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.content import ObjectStore
from patchgym.records import Observation, Stream, Trajectory
from patchgym.reward import RewardSettings
from patchgym.rollout import Collector, Phase, PolicyOptions, RolloutSettings, open_policy
from patchgym.rollout.likeness import Difference, compare, normalised, reason_of
from patchgym.rollout.replay import Replayed, Replayer, certificate
from patchgym.store import RunDirectory
from tests.records_for_tests import make_manifest
from tests.workshop import calc_task, here, sandboxes


def replayed(folder: Path, policy: str, *, samples: int = 1, change: bool = False) -> list[Replayed]:
    """Collect with a policy and replay; with ``change``, replay a record whose first step says something else."""
    run = RunDirectory.open_for_writing(folder / "run", make_manifest())
    task = calc_task(run.objects)
    with sandboxes(run.objects, folder) as factory:
        collector = Collector(run, factory, here, RewardSettings(), 7)
        source = open_policy(policy, PolicyOptions())
        asyncio.run(collector.collect(Phase("rollout", [task], samples), source, RolloutSettings()))
    run.close()
    objects = ObjectStore(folder / "replay", run.objects)
    with sandboxes(objects, folder / "again") as factory:
        replayer = Replayer(objects, factory, here, {task.id: task})

        async def every() -> list[Replayed]:
            return [await replayer.replay(_changed(one) if change else one) for one in run.trajectories]

        return asyncio.run(every())


def _changed(trajectory: Trajectory) -> Trajectory:
    first = trajectory.steps[0]
    assert first.observation is not None
    forged = first.model_copy(update={"observation": first.observation.model_copy(update={"exit_code": 77})})
    return trajectory.model_copy(update={"steps": (forged, *trajectory.steps[1:])})


def script(folder: Path, actions: Sequence[str]) -> str:
    """A policy that runs these commands."""
    steps = [{"tool": "run_command", "arguments": {"command": command}} for command in actions]
    (folder / "script.json").write_text(json.dumps({"*": steps}))
    return f"scripted:{folder / 'script.json'}"


def test_gold_reproduces_with_its_verdict(tmp_path: Path) -> None:
    (one,) = replayed(tmp_path, "gold")
    assert one.diverged == 0
    assert one.exact + one.normalised >= 4
    assert (one.recorded_verdict, one.verdict) == ("resolved", "resolved")


def test_a_record_that_says_something_else_is_found(tmp_path: Path) -> None:
    (one,) = replayed(tmp_path, "gold", change=True)
    (divergence,) = one.divergences
    assert (divergence.step, divergence.what, divergence.reason) == (0, ("exit_code",), "environment")
    assert "77" in divergence.diff


def test_chance_is_told_as_chance_and_does_not_spoil_the_steps_after_it(tmp_path: Path) -> None:
    commands = ["od -An -N8 -tx1 /dev/urandom > drawn", "cat drawn", "echo fine"]
    (one,) = replayed(tmp_path, script(tmp_path, commands))
    assert [(divergence.step, divergence.what) for divergence in one.divergences] == [(0, ("state",))]
    assert (one.exact, one.diverged) == (3, 1)


def test_output_that_is_drawn_is_randomness(tmp_path: Path) -> None:
    (one,) = replayed(tmp_path, script(tmp_path, ["od -An -N8 -tx1 /dev/urandom"]))
    assert [divergence.reason for divergence in one.divergences] == ["randomness"]


def test_durations_dates_addresses_and_temporary_paths_are_equal_after_normalising(tmp_path: Path) -> None:
    commands = ["date", "python -c 'print(object())'", "mktemp", "date +%FT%T.%N"]
    (one,) = replayed(tmp_path, script(tmp_path, commands))
    assert one.divergences == ()
    assert one.normalised == 4


def test_a_noisy_policy_reproduces_but_for_chance(tmp_path: Path) -> None:
    done = replayed(tmp_path, "noisy:0.6", samples=6)
    assert sum(one.exact + one.normalised for one in done) > 20
    assert {divergence.reason for one in done for divergence in one.divergences} <= {"randomness", "time"}
    assert all(one.verdict == one.recorded_verdict for one in done)


def test_a_certificate_counts_every_step_once() -> None:
    done = [Replayed(trajectory="a", exact=3, normalised=1, recorded_verdict="resolved", verdict="resolved")]
    done += [Replayed(trajectory="b", exact=1, diverged=1, skipped=2, recorded_verdict="resolved", verdict="timeout")]
    found = certificate("run", 5, 0, done)
    assert (found.trajectories, found.steps, found.exact, found.normalised, found.diverged) == (2, 6, 4, 1, 1)
    assert (found.verdicts, found.verdicts_same) == (2, 1)
    assert found.verdict_changes == {"b": "resolved -> timeout"}
    assert found.share == pytest.approx(5 / 6)


NOISE = st.sampled_from(
    [
        ("ran in 0.12s", "ran in 12.5s"),
        ("<object object at 0x7f0011223344>", "<object object at 0x55ab33ffee10>"),
        ("/tmp/tmpabc123/file.py:3", "/tmp/tmpzzz/file.py:3"),
        ("2026-01-02T03:04:05.123Z start", "2027-11-12T13:14:15Z start"),
        ("Mon Nov 30 07:36:52 UTC 2026", "Tue Dec  1 08:00:00 UTC 2026"),
    ]
)


@given(st.lists(NOISE), st.text())
def test_what_differs_between_any_two_runs_is_masked(noise: list[tuple[str, str]], rest: str) -> None:
    one, other = ("\n".join([*(pair[side] for pair in noise), rest]) for side in (0, 1))
    assert normalised(one) == normalised(other)


@given(st.text(max_size=200))
def test_a_masked_text_stays_as_it_is(text: str) -> None:
    assert normalised(normalised(text)) == normalised(text)


@pytest.mark.parametrize("text", ["1" * 100_000, "a" * 100_000, "/tmp/" * 20_000, "12:34:" * 20_000, "0x" * 50_000])
def test_masking_takes_no_longer_for_evil_lines(text: str) -> None:
    assert normalised(text)


def test_figures_that_are_no_noise_are_not_masked() -> None:
    assert normalised("3 passed, 1 failed") != normalised("4 passed")
    assert not Difference("shown", "total 3", "total 4").normalised


def test_the_same_lines_in_another_order_are_told_as_order() -> None:
    old, new = Observation(shown="a\nb"), Observation(shown="b\na")
    assert reason_of(old, new, [], compare(old, new, lambda blob: b"")) == "order"


def test_a_limit_that_struck_once_is_told_as_resource_or_time() -> None:
    old, new = Observation(shown="a", ending="exited"), Observation(shown="", ending="out_of_memory")
    assert reason_of(old, new, [], compare(old, new, lambda blob: b"")) == "resource"
    late = Observation(shown="", ending="timed_out", timed_out=True)
    assert reason_of(old, late, [], compare(old, late, lambda blob: b"")) == "time"


def test_streams_are_compared_whole() -> None:
    kept = {"1": b"x" * 100, "2": b"y" * 100}
    old, new = (Observation(shown="cut", stdout=Stream(text="cut", size=100, blob=blob)) for blob in "12")
    assert [difference.what for difference in compare(old, new, kept.__getitem__)] == ["stdout"]


def test_what_a_log_does_not_say_is_not_compared() -> None:
    said, new = Observation(shown="a"), Observation(shown="a", ok=True, exit_code=0, ending="none", stdout=Stream())
    assert compare(said, new, lambda blob: b"") == []
