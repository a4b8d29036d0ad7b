"""Real episodes of scripted agents in the real sandbox."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from patchgym.agent import TOOLS, Episode, EpisodeSettings, Surroundings, run_episode
from patchgym.content import ObjectStore
from patchgym.errors import ContextLengthError, EndpointError
from patchgym.policy import Policy
from patchgym.policy.scripted import ScriptedPolicy
from patchgym.records import (
    Action,
    Limits,
    Message,
    Outcome,
    Sample,
    Sampling,
    Step,
    StopReason,
    ToolCall,
    ToolSpec,
    Usage,
)
from patchgym.testrun import Built, sandbox_spec
from tests.workshop import BUGGY, FIXED, calc_task, here, sandboxes

Run = Callable[..., Episode]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    objects = ObjectStore(tmp_path / "objects")

    def ran(
        script: Sequence[Action | str] | Policy,
        limits: Limits | None = None,
        seen: list[Step] | None = None,
        tools: tuple[str, ...] = tuple(TOOLS),
    ) -> Episode:
        task = calc_task(objects, limits=limits)
        policy = script if not isinstance(script, Sequence) else ScriptedPolicy(script, "test")

        async def episode() -> Episode:
            with sandboxes(objects, tmp_path) as factory:
                sandbox = await factory.create(
                    sandbox_spec(task.workspace, task.environment, Built(here(task.environment)))
                )
                try:
                    on_step = (lambda step: None) if seen is None else seen.append
                    settings = EpisodeSettings(sampling=Sampling(), tools=tools)
                    around = Surroundings(task.view(), policy, objects, settings)
                    return await run_episode(around, sandbox, on_step=on_step)
                finally:
                    await sandbox.close()

        result = asyncio.run(episode())
        result.steps and objects.entries(result.final_state)
        return result

    return ran


def act(tool: str, **arguments: str) -> Action:
    return Action(tool=tool, arguments=dict(arguments))


FIX = act(
    "edit_file",
    path="calc.py",
    old="    if value > high:\n        return low",
    new="    if value > high:\n        return high",
)


def test_a_scripted_agent_finds_fixes_and_checks_a_bug(run: Run, tmp_path: Path) -> None:
    seen: list[Step] = []
    script = [
        act("list_files"),
        act("run_tests"),
        act("read_file", path="calc.py", start="3", end="7"),
        FIX,
        act("run_tests"),
    ]
    episode = run(script, seen=seen)
    assert episode.stop is StopReason.SUBMITTED
    assert [step.action.tool for step in episode.steps if step.action] == [
        "list_files",
        "run_tests",
        "read_file",
        "edit_file",
        "run_tests",
        "submit",
    ]
    before, after = (episode.steps[turn].observation for turn in (1, 4))
    assert before is not None
    assert after is not None
    assert before.tests == {"tests/test_calc.py::test_above": Outcome.FAILED}
    assert "assert 0 == 9" in before.shown
    assert after.tests == {"tests/test_calc.py::test_above": Outcome.PASSED}
    assert episode.steps[3].changed_paths == ("calc.py",)
    assert seen == episode.steps


def test_each_step_holds_the_state_before_and_after_it(run: Run, tmp_path: Path) -> None:
    episode = run([act("write_file", path="notes.txt", content="one"), FIX, act("run_command", command="rm README")])
    objects = ObjectStore(tmp_path / "objects")
    first, second, third, last = episode.steps
    assert [first.state_after, second.state_after, third.state_after] == [
        second.state_before,
        third.state_before,
        last.state_before,
    ]
    assert len({first.state_before, second.state_before, third.state_before, third.state_after}) == 4
    assert "notes.txt" not in objects.entries(str(first.state_before))
    assert objects.get(objects.entries(str(second.state_before))["notes.txt"].id) == b"one\n"
    assert objects.get(objects.entries(str(third.state_before))["calc.py"].id).decode() == FIXED
    assert "README" not in objects.entries(str(third.state_after))
    assert third.changed_paths == ("README",)


def test_the_hidden_test_is_nowhere_in_the_agents_sight(run: Run) -> None:
    episode = run(
        [
            act("run_tests", tests="all"),
            act("search", pattern="far_above"),
            act("run_command", command="grep -r far_above / 2>/dev/null; true"),
        ]
    )
    assert all("far_above" not in step.observation.shown for step in episode.steps[:2] if step.observation)
    assert episode.steps[2].observation is not None
    assert episode.steps[2].observation.stdout is not None
    assert "far_above" not in episode.steps[2].observation.stdout.text


@pytest.mark.parametrize(
    ("new", "line"),
    [
        ("return high", "        return high"),  # the indentation stays
        ("    return high", "    return high"),  # or is given
        ("x = 1\ny = 2", "x = 1\ny = 2"),
    ],
)
def test_a_line_is_replaced(run: Run, tmp_path: Path, new: str, line: str) -> None:
    episode = run([act("edit_line", path="calc.py", line="6", new=new)])
    objects = ObjectStore(tmp_path / "objects")
    text = objects.get(objects.entries(episode.final_state)["calc.py"].id).decode()
    assert text == "\n".join([*BUGGY.split("\n")[:5], line, *BUGGY.split("\n")[6:]])


def test_a_line_that_is_replaced_by_nothing_goes(run: Run, tmp_path: Path) -> None:
    episode = run([act("edit_line", path="calc.py", line="2", new="")])
    objects = ObjectStore(tmp_path / "objects")
    text = objects.get(objects.entries(episode.final_state)["calc.py"].id).decode()
    assert text == BUGGY.replace('    """Value, kept between low and high."""\n', "")


def test_an_agent_has_no_other_tools_than_it_is_given(run: Run) -> None:
    first, second = run(
        [FIX, act("edit_line", path="calc.py", line="6", new="return high")], tools=("edit_line",)
    ).steps[:2]
    assert first.parse_error == "There is no tool 'edit_file'; there are: edit_line."
    assert second.changed_paths == ("calc.py",)
    told = first.prompt[0].content
    assert "edit_line path line new" in told
    assert "edit_file" not in told


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (act("edit_line", path="calc.py", line="900", new="x"), "it has 11 lines"),
        (act("edit_line", path="calc.py", line="0", new="x"), "it has 11 lines"),
        (act("edit_line", path="calc.py", line="6", new="return low"), "is that already"),
        (act("edit_file", path="calc.py", old="return", new="x"), "old occurs 4 times"),
        (act("edit_file", path="calc.py", old="no such text", new="x"), "old occurs 0 times"),
        (act("read_file", path="absent.py"), "no such file"),
        (act("read_file", path="../../etc/passwd"), ""),
        (act("read_file", path="tests"), "directory"),
        (act("search", pattern="(unclosed"), ""),
        (act("read_file", path="calc.py", start="900"), "none in 900"),
    ],
)
def test_a_tool_that_cannot_do_it_says_so(run: Run, script: Action, said: str) -> None:
    step = run([script]).steps[0]
    assert step.action is not None
    assert step.observation is not None
    assert not step.observation.ok
    assert said in step.observation.shown.lower()
    assert "root:" not in step.observation.shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("I think it is fine.", "No action"),
        ("tool: dance", "no tool 'dance'"),
        ("tool: edit_file\npath: calc.py", "needs the argument old"),
        ("tool: read_file\npath: calc.py\nstart: soon", "whole number"),
        ("tool: submit\nnow: yes", "no argument now"),
    ],
)
def test_an_unreadable_message_is_answered_and_changes_nothing(run: Run, text: str, said: str) -> None:
    step = run([text]).steps[0]
    assert step.action is None
    assert step.parse_error is not None
    assert said in step.parse_error
    assert step.state_before == step.state_after


def test_three_unreadable_messages_in_a_row_end_the_episode(run: Run) -> None:
    assert run(["hm", "hm", act("list_files"), "hm", "hm", "hm", act("list_files")]).stop is StopReason.PROTOCOL


def test_the_turn_limit_ends_the_episode(run: Run) -> None:
    episode = run([act("list_files")] * 9, limits=Limits(turns=3))
    assert episode.stop is StopReason.TURN_LIMIT
    assert len(episode.steps) == 3


def test_a_command_past_its_time_is_killed_and_recorded_as_such(run: Run) -> None:
    episode = run([act("run_command", command="sleep 600 & sleep 600")], limits=Limits(command_seconds=1))
    observation = episode.steps[0].observation
    assert observation is not None
    assert observation.timed_out
    assert observation.exit_code is None
    assert "still running" in observation.shown
    assert episode.stop is StopReason.SUBMITTED


def test_long_output_is_cut_for_the_model_and_kept_whole(run: Run, tmp_path: Path) -> None:
    episode = run([act("run_command", command="seq 1 30000; printf '\\377\\376'")], limits=Limits(output_bytes=500))
    observation = episode.steps[0].observation
    assert observation is not None
    assert len(observation.shown) < 700
    assert "left out" in observation.shown
    stream = observation.stdout
    assert stream is not None
    assert stream.blob is not None
    assert not stream.cut
    whole = ObjectStore(tmp_path / "objects").get(stream.blob)
    assert whole == b"".join(b"%d\n" % n for n in range(1, 30001)) + b"\xff\xfe"
    assert stream.size == len(whole)


def test_names_that_are_no_text_are_written_out(run: Run) -> None:
    touched, listed, _ = run([act("run_command", command="touch \"$(printf 'a\\377')\""), act("list_files")]).steps
    assert touched.changed_paths == ("a\\udcff",)
    assert listed.observation is not None
    assert "a\\udcff" in listed.observation.shown.splitlines()


class Failing:
    """A policy that lists files once and then raises."""

    version = "failing"
    native_tools = False

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def sample(self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling) -> Sample:
        if len(messages) > 2:
            raise self._error
        message = Message(role="assistant", content="tool: list_files")
        return Sample(message=message, usage=Usage(prompt_tokens=1, sampled_tokens=1), finish_reason="stop")


def test_an_endpoint_that_dies_is_a_fault_and_keeps_the_steps(run: Run) -> None:
    episode = run(Failing(EndpointError("gone")))
    assert episode.stop is StopReason.INFRASTRUCTURE
    assert [(fault.where, fault.kind) for fault in episode.faults] == [("policy", "EndpointError")]
    assert len(episode.steps) == 1


def test_a_conversation_that_no_longer_fits_is_no_fault(run: Run) -> None:
    episode = run(Failing(ContextLengthError("full")))
    assert episode.stop is StopReason.CONTEXT_LIMIT
    assert not episode.faults


class Native:
    """A policy with native tool calls, two in its first message."""

    version = "native"
    native_tools = True

    def __init__(self) -> None:
        self.heard: list[Message] = []

    async def sample(self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling) -> Sample:
        self.heard = list(messages)
        assert {tool.name for tool in tools} >= {"edit_file", "submit"}
        calls = (
            (ToolCall(id="a", name="list_files", arguments="{}"), ToolCall(id="b", name="submit", arguments="{}"))
            if len(messages) == 2
            else (ToolCall(id="c", name="submit", arguments=""),)
        )
        message = Message(role="assistant", content="", tool_calls=calls)
        return Sample(message=message, usage=Usage(prompt_tokens=1, sampled_tokens=1), finish_reason="tool_calls")


def test_native_calls_are_answered_by_id_and_only_the_first_is_done(run: Run) -> None:
    policy = Native()
    episode = run(policy)
    assert [step.action.tool for step in episode.steps if step.action] == ["list_files", "submit"]
    answers = [message for message in policy.heard if message.role == "tool"]
    assert [answer.tool_call_id for answer in answers] == ["a", "b"]
    assert "calc.py" in answers[0].content
    assert "one tool call" in answers[1].content
