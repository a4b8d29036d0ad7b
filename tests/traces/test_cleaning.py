"""Cleaning drops what is empty, marks what is doubled or ran out of time, and leaves no secret behind anywhere."""

import json
import random
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from patchgym.content import Entry, diff_trees
from patchgym.content.objects import FILE
from patchgym.records import (
    Action,
    Attachment,
    Fault,
    Message,
    Observation,
    Origin,
    Step,
    StepTokens,
    StopReason,
    Stream,
    Timing,
    ToolCall,
    Trajectory,
    Usage,
    Verdict,
)
from patchgym.records.timeouts import timeout_of
from patchgym.store import RunDirectory
from patchgym.traces.cleaning import Cleaning, clean_run
from tests.records_for_tests import make_manifest, make_report, make_step, make_task, make_trajectory
from tests.redact.shapes import SHAPES

SECRET = SHAPES["github_classic"](random.Random(11))
OTHER = SHAPES["anthropic"](random.Random(12))
IDS = StepTokens(prompt_ids=(1, 2), sampled_ids=(3,), logprobs=(-0.1,), mask=(1,))


def opened(path: Path) -> RunDirectory:
    return RunDirectory.open_for_writing(path, make_manifest())


def cleaned(
    tmp_path: Path, trajectories: Sequence[Trajectory], run: RunDirectory | None = None, known: Sequence[str] = ()
) -> tuple[list[Trajectory], Cleaning]:
    """The trajectories as a cleaned run holds them, and what cleaning says of it."""
    old = run or opened(tmp_path / "old")
    old.objects.write_tree({})  # the state of steps that name no other
    for trajectory in trajectories:
        old.append(trajectory)
    old.close()
    new = opened(tmp_path / "new")
    done = clean_run(RunDirectory.read(tmp_path / "old"), new, known)
    new.close()
    return list(RunDirectory.read(tmp_path / "new").trajectories), done


def everything(path: Path) -> bytes:
    """All bytes of a run directory, objects unpacked."""
    parts = []
    for file in sorted(path.rglob("*")):
        if file.is_file():
            data = file.read_bytes()
            parts.append(zlib.decompress(data) if len(file.parent.name) == 2 else data)
    return b"\n".join(parts)


def solved(sample: int = 0, steps: Sequence[Step] = (make_step(),)) -> Trajectory:
    return make_trajectory(sample, report=make_report(Verdict.RESOLVED), reward=1.0, steps=steps)


def said(text: str, index: int = 0) -> Step:
    """A step whose answer says something; with token ids."""
    message = Message(role="assistant", content=text, sampled_ids=(3,))
    return make_step(index, tokens=IDS).model_copy(update={"message": message})


def test_an_empty_trajectory_is_dropped_and_counted(tmp_path: Path) -> None:
    kept, done = cleaned(tmp_path, [make_trajectory(0), solved(1)])
    assert [trajectory.sample_index for trajectory in kept] == [1]
    assert (done.read, done.empty, done.empty_by_infrastructure, done.kept) == (2, 1, 1, 1)


def test_a_failure_is_kept(tmp_path: Path) -> None:
    failed = make_trajectory(0, report=make_report(Verdict.UNRESOLVED), reward=0.0, steps=[make_step()])
    kept, done = cleaned(tmp_path, [failed])
    assert len(kept) == 1
    assert done.failures == 1


def test_a_duplicate_is_marked_with_the_first_of_its_kind(tmp_path: Path) -> None:
    other = make_step().model_copy(update={"action": Action(tool="run_tests", arguments={})})
    kept, done = cleaned(tmp_path, [solved(0), solved(1, [other]), solved(2)])
    assert [trajectory.duplicate_of for trajectory in kept] == [None, None, kept[0].id]
    assert done.duplicates == 1


def test_how_long_the_tests_took_makes_no_difference_between_duplicates(tmp_path: Path) -> None:
    steps = [
        make_step().model_copy(update={"observation": Observation(shown=f"1 passed in {seconds}s", ok=True)})
        for seconds in ("0.12", "3.40")
    ]
    kept, _ = cleaned(tmp_path, [solved(0, [steps[0]]), solved(1, [steps[1]])])
    assert kept[1].duplicate_of == kept[0].id


def test_the_same_steps_on_another_task_are_no_duplicate(tmp_path: Path) -> None:
    other = make_trajectory(0, task_id="demo-2", report=make_report(), reward=0.0, steps=[make_step()])
    kept, _ = cleaned(tmp_path, [solved(0), other])
    assert kept[1].duplicate_of is None


def timed(
    commands: float, acting: float, sampling: float, tokens: int = 10, stop: StopReason = StopReason.TIME_LIMIT
) -> Trajectory:
    step = make_step().model_copy(
        update={
            "observation": Observation(shown="", seconds=commands),
            "usage": Usage(prompt_tokens=1, sampled_tokens=tokens),
        }
    )
    timing = Timing(total_seconds=acting + sampling, acting_seconds=acting, sampling_seconds=sampling)
    made = make_trajectory(0, report=make_report(), reward=0.0, steps=[step], stop=stop)
    return made.model_copy(update={"timing": timing})


@pytest.mark.parametrize(
    ("trajectory", "whose"),
    [
        (timed(90, 95, 5), "policy"),
        (timed(5, 95, 5), "sandbox"),
        (timed(5, 6, 90, tokens=40), "endpoint"),
        (timed(5, 6, 90, tokens=9000), "policy"),
        (timed(0, 0, 0), "unknown"),
        (timed(90, 95, 5, stop=StopReason.SUBMITTED), None),
        (make_trajectory(0, report=make_report(Verdict.TIMEOUT), reward=0.0, steps=[make_step()]), "policy"),
        (
            make_trajectory(0).model_copy(
                update={"faults": (Fault(kind="EndpointRetryable", where="policy", message="It timed out."),)}
            ),
            "endpoint",
        ),
        (
            make_trajectory(0).model_copy(
                update={"faults": (Fault(kind="SandboxError", where="sandbox", message="no start: timeout"),)}
            ),
            "sandbox",
        ),
        (
            make_trajectory(0).model_copy(
                update={"faults": (Fault(kind="SandboxError", where="sandbox", message="It was lost."),)}
            ),
            None,
        ),
    ],
)
def test_a_timeout_is_of_what_used_the_time_up(trajectory: Trajectory, whose: str | None) -> None:
    assert timeout_of(trajectory) == whose


def test_a_command_that_timed_out_is_no_timeout_of_the_trajectory(tmp_path: Path) -> None:
    step = make_step().model_copy(update={"observation": Observation(shown="killed", timed_out=True, seconds=60)})
    kept, done = cleaned(tmp_path, [solved(0, [step])])
    assert kept[0].timeout_of is None
    assert not done.timeouts


def full_of_secrets(run: RunDirectory) -> Trajectory:
    """A trajectory with the secret in everything that it holds or names."""
    objects = run.objects
    start = objects.write_tree({"a.py": Entry(FILE, objects.put(b"x = 1\n"))})
    found = objects.update_tree(start, {"d/env": Entry(FILE, objects.put(f"K={SECRET}\n".encode()))})
    hidden = "".join(f"\\u{ord(letter):04x}" for letter in SECRET)
    message = Message(
        role="assistant",
        content=f"I use {SECRET}",
        reasoning=f"it is {SECRET}",
        tool_calls=(ToolCall(id="1", name="run", arguments=f'{{"command": "login {hidden}"}}'),),
    )
    stream = Stream(text=f"{SECRET}\n", size=41, blob=objects.put(f"{SECRET}\n".encode()))
    attached = Attachment(media_type="text/plain", blob=objects.put(f"note {SECRET}".encode()))
    step = make_step().model_copy(
        update={
            "prompt": (Message(role="user", content=SECRET, attachments=(attached,)),),
            "message": message,
            "action": Action(tool="run", arguments={"command": ["login", {"with": SECRET}], SECRET: 1}),
            "observation": Observation(shown=SECRET, stdout=stream, stderr=stream),
            "state_before": start,
            "state_after": found,
            "changed_paths": ("d/env",),
        }
    )
    report = make_report(Verdict.RESOLVED).model_copy(update={"why": SECRET, "log": f"log {SECRET}"})
    made = make_trajectory(0, report=report, reward=1.0, steps=[step], patch=f"+K={SECRET}\n")
    return made.model_copy(
        update={
            "final_state": found,
            "faults": (Fault(kind="X", where="sandbox", message=f"lost {SECRET}"),),
            "origin": Origin(format="x", file=f"{SECRET}.log", repo=f"https://{SECRET}@github.com/a/b"),
        }
    )


def test_no_secret_is_left_anywhere_in_the_new_run(tmp_path: Path) -> None:
    run = opened(tmp_path / "old")
    kept, done = cleaned(tmp_path, [full_of_secrets(run)], run)
    assert SECRET.encode() in everything(tmp_path / "old")
    assert SECRET.encode() not in everything(tmp_path / "new")
    assert SECRET not in json.dumps(json.loads(kept[0].steps[0].message.tool_calls[0].arguments))
    assert kept[0].redacted == {"github_token": done.redacted["github_token"]}
    assert kept[0].steps[0].message.content == "I use <redacted:github_token:1>"


def test_the_old_run_is_not_changed(tmp_path: Path) -> None:
    run = opened(tmp_path / "old")
    run.append(full_of_secrets(run))
    run.close()
    before = everything(tmp_path / "old")
    new = opened(tmp_path / "new")
    clean_run(RunDirectory.read(tmp_path / "old"), new)
    assert everything(tmp_path / "old") == before


def test_states_have_new_ids_where_the_agent_wrote_a_secret_and_old_ones_elsewhere(tmp_path: Path) -> None:
    run = opened(tmp_path / "old")
    old = full_of_secrets(run)
    (new,), _ = cleaned(tmp_path, [old], run)
    objects = RunDirectory.read(tmp_path / "new").objects
    assert new.steps[0].state_before == old.steps[0].state_before
    assert new.steps[0].state_after == new.final_state != old.final_state
    assert new.final_state is not None
    files = objects.entries(new.final_state)
    assert objects.get(files["d/env"].id) == b"K=<redacted:github_token:1>\n"
    assert objects.get(files["a.py"].id) == b"x = 1\n"


def test_a_file_that_the_agent_did_not_touch_is_as_it_was(tmp_path: Path) -> None:
    run = opened(tmp_path / "old")
    tree = run.objects.write_tree({"AUTHORS": Entry(FILE, run.objects.put(b"Maria <maria@acme.io>\n"))})
    later = run.objects.update_tree(tree, {"b.py": Entry(FILE, run.objects.put(b"y = 2\n"))})
    step = make_step().model_copy(update={"state_before": tree, "state_after": later})
    (new,), _ = cleaned(tmp_path, [solved(0, [step]).model_copy(update={"final_state": later})], run)
    assert (new.steps[0].state_before, new.final_state) == (tree, later)


def test_of_a_file_that_the_agent_changed_only_what_it_added_goes(tmp_path: Path) -> None:
    run = opened(tmp_path / "old")
    own = "# By Maria <maria@acme.io>\n" + "x = 1\n" * 20
    tree = run.objects.write_tree({"a.py": Entry(FILE, run.objects.put(own.encode()))})
    later = run.objects.update_tree(tree, {"a.py": Entry(FILE, run.objects.put(f"{own}K = '{SECRET}'\n".encode()))})
    patch = diff_trees(run.objects, tree, later)
    step = make_step().model_copy(update={"state_before": tree, "state_after": later})
    old = solved(0, [step]).model_copy(update={"final_state": later, "final_patch": patch})
    (new,), _ = cleaned(tmp_path, [old], run)
    objects = RunDirectory.read(tmp_path / "new").objects
    assert new.final_state is not None
    assert (
        objects.get(objects.entries(new.final_state)["a.py"].id).decode() == f"{own}K = '<redacted:github_token:1>'\n"
    )
    assert new.final_patch is not None
    assert new.final_patch.count("@@ ") == 1


def test_the_new_store_holds_only_what_the_new_trajectories_reach(tmp_path: Path) -> None:
    run = opened(tmp_path / "old")
    stray = run.objects.put(b"of nobody")
    cleaned(tmp_path, [full_of_secrets(run)], run)
    assert stray not in RunDirectory.read(tmp_path / "new").objects


def test_the_final_patch_is_of_the_new_states(tmp_path: Path) -> None:
    run = opened(tmp_path / "old")
    old = full_of_secrets(run)
    assert old.steps[0].state_before is not None
    assert old.final_state is not None
    patch = diff_trees(run.objects, old.steps[0].state_before, old.final_state)
    (new,), _ = cleaned(tmp_path, [old.model_copy(update={"final_patch": patch})], run)
    assert new.final_state is not None
    objects = RunDirectory.read(tmp_path / "new").objects
    assert new.final_patch == diff_trees(objects, old.steps[0].state_before, new.final_state)


def test_token_ids_go_from_the_redacted_step_on(tmp_path: Path) -> None:
    steps = [said("fine"), said(f"use {SECRET}", 1), said("fine again", 2)]
    (new,), done = cleaned(tmp_path, [solved(0, steps)])
    assert [step.tokens is None for step in new.steps] == [False, True, True]
    assert [step.message.sampled_ids for step in new.steps] == [(3,), None, None]
    assert done.without_ids == 2


def test_a_redacted_answer_has_no_ids_in_later_prompts_either(tmp_path: Path) -> None:
    again = Message(role="assistant", content=f"use {SECRET}", sampled_ids=(3,))
    late = said("later").model_copy(update={"index": 1, "parent": None, "prompt": (again,)})
    (new,), _ = cleaned(tmp_path, [solved(0, [said(f"use {SECRET}"), late])])
    assert new.steps[1].prompt[0].sampled_ids is None


def test_a_branch_beside_the_redacted_step_keeps_its_ids(tmp_path: Path) -> None:
    beside = said("other", 2).model_copy(update={"parent": 0})
    (new,), _ = cleaned(tmp_path, [solved(0, [said("root"), said(SECRET, 1), beside])])
    assert [step.tokens is None for step in new.steps] == [False, True, False]


def test_a_compaction_begins_a_context_that_keeps_its_ids(tmp_path: Path) -> None:
    whole = said("new", 1).model_copy(update={"compacted": True, "tokens": IDS.model_copy(update={"restart": True})})
    (new,), _ = cleaned(tmp_path, [solved(0, [said(SECRET), whole])])
    assert [step.tokens is None for step in new.steps] == [True, False]


def test_a_known_secret_goes(tmp_path: Path) -> None:
    (new,), _ = cleaned(tmp_path, [solved(0, [said("the word is violet-otter")])], known=["violet-otter"])
    assert new.steps[0].message.content == "the word is <redacted:known_secret:1>"


def test_equal_secrets_have_equal_markers_over_the_run(tmp_path: Path) -> None:
    kept, _ = cleaned(tmp_path, [solved(0, [said(SECRET)]), solved(1, [said(OTHER)]), solved(2, [said(f"a {SECRET}")])])
    assert [trajectory.steps[0].message.content for trajectory in kept] == [
        "<redacted:github_token:1>",
        "<redacted:anthropic_key:1>",
        "a <redacted:github_token:1>",
    ]


def test_cleaning_again_changes_nothing(tmp_path: Path) -> None:
    run = opened(tmp_path / "old")
    (once,), _ = cleaned(tmp_path, [full_of_secrets(run)], run)
    third = opened(tmp_path / "third")
    clean_run(RunDirectory.read(tmp_path / "new"), third)
    assert list(third.trajectories) == [once]


def test_a_trajectory_whose_state_is_missing_is_left_out_and_named(tmp_path: Path) -> None:
    lost = make_step().model_copy(update={"state_after": "0" * 40})
    kept, done = cleaned(tmp_path, [solved(0, [lost]), solved(1)])
    assert [trajectory.sample_index for trajectory in kept] == [1]
    assert "demo-1.0" in done.problems[0]


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "patchgym", "traces", *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_the_command_writes_a_cleaned_run_and_says_what_it_did(tmp_path: Path) -> None:
    run = opened(tmp_path / "old")
    run.append(full_of_secrets(run))
    run.append(make_trajectory(1))
    run.close()
    (tmp_path / "known").write_text("violet-otter\n\n")
    done = command("clean", tmp_path / "old", "--out", tmp_path / "new", "--known", tmp_path / "known", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["read"], told["kept"], told["empty"]) == (2, 1, 1)
    assert SECRET.encode() not in everything(tmp_path / "new")


def test_the_table_fits_a_narrow_terminal(tmp_path: Path) -> None:
    run = opened(tmp_path / "old")
    run.append(full_of_secrets(run))
    run.close()
    done = command("clean", tmp_path / "old", "--out", tmp_path / "new")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 80


def test_of_a_run_without_anything_to_keep_nothing_is_written(tmp_path: Path) -> None:
    run = opened(tmp_path / "old")
    run.append(make_trajectory(0))
    run.close()
    done = command("clean", tmp_path / "old", "--out", tmp_path / "new")
    assert done.returncode == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("options", "there"), [((), False), (("--raw",), True)])
def test_an_import_is_cleaned_unless_it_is_to_be_raw(tmp_path: Path, options: tuple[str, ...], there: bool) -> None:
    row = {
        "task_id": "t1",
        "repo": "a/b",
        "base_commit": "c" * 40,
        "prompt": f"Log in with {SECRET}.",
        "trajectory": [{"step": 1, "action": "run", "args": {"command": "ls"}, "output_excerpt": "x", "success": True}],
        "final_patch": "",
    }
    (tmp_path / "log.jsonl").write_text(json.dumps(row))
    done = command("import", "auto", tmp_path / "log.jsonl", "--out", tmp_path / "run", "--json", *options)
    assert done.returncode == 0, done.stderr
    assert (SECRET.encode() in everything(tmp_path / "run")) is there
    (trajectory,) = RunDirectory.read(tmp_path / "run").trajectories
    assert (trajectory.redacted is None) is there


def test_the_tasks_of_the_kept_trajectories_come_along(tmp_path: Path) -> None:
    run = opened(tmp_path / "old")
    run.keep_tasks([make_task("demo-1"), make_task("demo-2")])
    cleaned(tmp_path, [solved(0)], run)
    assert list(RunDirectory.read(tmp_path / "new").tasks()) == ["demo-1"]
