"""Collecting: complete records, resumption, and faults that become nobody's reward."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from patchgym.content import ObjectStore
from patchgym.errors import EndpointError, UsageError
from patchgym.policy import Policy
from patchgym.records import (
    Action,
    Environment,
    Message,
    Sample,
    Sampling,
    StopReason,
    Task,
    ToolSpec,
    Trajectory,
    Usage,
    Verdict,
)
from patchgym.reward import RewardSettings
from patchgym.rollout import Collector, Phase, PolicyOptions, PolicySource, RolloutSettings, count_run, open_policy
from patchgym.sandbox import Sandbox, SandboxFactory, SandboxSpec
from patchgym.sandbox.environments import build_environment
from patchgym.store import RunDirectory
from tests.records_for_tests import make_manifest
from tests.workshop import calc_task, here, need_namespaces, sandboxes

USUAL = RolloutSettings()


def collected(
    folder: Path,
    source: PolicySource,
    samples: int = 2,
    settings: RolloutSettings = USUAL,
    build: Callable[[Environment], Path] = here,
) -> list[Trajectory]:
    run = RunDirectory.open_for_writing(folder / "run", make_manifest())
    try:
        task = calc_task(run.objects)
        with sandboxes(run.objects, folder) as factory:
            collector = Collector(run, factory, build, RewardSettings(), 7)
            return asyncio.run(collector.collect(Phase("rollout", [task], samples), source, settings))
    finally:
        run.close()


def test_gold_solves_every_sample(tmp_path: Path) -> None:
    counts = count_run(collected(tmp_path, open_policy("gold", PolicyOptions())))
    assert (counts.trajectories, counts.resolved, counts.submitted) == (2, 2, 2)
    assert counts.mean_reward is not None
    assert 0.95 <= counts.mean_reward <= 1.0


def test_noop_solves_none(tmp_path: Path) -> None:
    counts = count_run(collected(tmp_path, open_policy("noop", PolicyOptions())))
    assert (counts.resolved, counts.unresolved, counts.mean_reward) == (0, 2, 0.0)


def test_a_script_from_a_file_is_followed(tmp_path: Path) -> None:
    edit = {
        "path": "calc.py",
        "old": "    if value > high:\n        return low",
        "new": "    if value > high:\n        return high",
    }
    file = tmp_path / "script.json"
    file.write_text(json.dumps({"*": [{"tool": "edit_file", "arguments": edit}, "tool: submit"]}))
    assert count_run(collected(tmp_path, open_policy(f"scripted:{file}", PolicyOptions()))).resolved == 2


def briefed(environment: Environment) -> Path:
    """The environment of a task is this interpreter's; that of coverage.py, which has a lock, is built."""
    return build_environment(environment) if environment.lock else here(environment)


def test_a_briefing_is_found_out_once_and_told_to_every_agent(tmp_path: Path) -> None:
    settings = RolloutSettings(briefing=1, tools=("edit_line",))
    gold = open_policy("gold", PolicyOptions(tools=settings.tools))
    found = collected(tmp_path, gold, settings=settings, build=briefed)
    assert count_run(found).resolved == 2
    for one in found:
        assert one.steps[0].prompt[-1].content.endswith("the likeliest first:\ncalc.py:\n6:         return low")
        assert one.steps[0].action == Action(
            tool="edit_line", arguments={"path": "calc.py", "line": "6", "new": "return high"}
        )


@pytest.mark.parametrize(("turns", "steps"), [(0, 5), (2, 2), (50, 5)])
def test_a_run_may_have_fewer_turns_than_its_tasks(tmp_path: Path, turns: int, steps: int) -> None:
    settings = RolloutSettings(turns=turns)
    found = collected(tmp_path, open_policy("gold", PolicyOptions()), samples=1, settings=settings)
    assert [len(one.steps) for one in found] == [steps]
    assert found[0].stop is (StopReason.TURN_LIMIT if turns == 2 else StopReason.SUBMITTED)


@pytest.mark.parametrize("once", [False, True])
def test_attempts_with_one_patch_can_share_a_grading(tmp_path: Path, once: bool) -> None:
    settings = RolloutSettings(grade_once=once)
    reports = [one.report for one in collected(tmp_path, open_policy("gold", PolicyOptions()), 3, settings)]
    assert all(report is not None and report.verdict is Verdict.RESOLVED for report in reports)
    assert len({report.seconds for report in reports if report is not None}) == (1 if once else 3)


class Counted:
    """The sandboxes of another factory for trees other than one, and the most of them that were there at once."""

    def __init__(self, factory: SandboxFactory, but: str) -> None:
        self.kind, self._factory, self._but = factory.kind, factory, but
        self.there = self.most = 0

    async def create(self, spec: SandboxSpec) -> Sandbox:
        sandbox = await self._factory.create(spec)
        if spec.tree == self._but:
            return sandbox
        self.there += 1
        self.most = max(self.most, self.there)
        return cast("Sandbox", CountedSandbox(sandbox, self))


class CountedSandbox:
    def __init__(self, sandbox: Sandbox, by: Counted) -> None:
        self._sandbox, self._by = sandbox, by

    def __getattr__(self, name: str) -> object:
        return getattr(self._sandbox, name)

    async def close(self) -> None:
        await self._sandbox.close()
        self._by.there -= 1


@pytest.mark.parametrize(("samples", "gradings", "at_once"), [(1, 0, 1), (4, 2, 2), (4, 0, 4)])
def test_no_more_attempts_are_graded_at_once_than_asked_for(
    tmp_path: Path, samples: int, gradings: int, at_once: int
) -> None:
    settings = RolloutSettings(gradings=gradings, turns=1)
    run = RunDirectory.open_for_writing(tmp_path / "run", make_manifest())
    task = calc_task(run.objects)
    with sandboxes(run.objects, tmp_path) as factory:
        counted = Counted(factory, task.workspace)
        collector = Collector(run, counted, here, RewardSettings(), 7)
        source = open_policy("noop", PolicyOptions())
        found = asyncio.run(collector.collect(Phase("rollout", [task], samples), source, settings))
    run.close()
    assert count_run(found).unresolved == samples
    assert counted.most == at_once


def test_a_tool_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="no tool 'dance'"):
        RolloutSettings(tools=("dance",))


def test_what_speaks_against_an_attempt_stands_in_its_reward(tmp_path: Path) -> None:
    weaker = {"path": "tests/test_calc.py", "old": "assert clamp(10, 0, 9) == 9", "new": "assert True"}
    named = {
        "path": "calc.py",
        "old": "    if value > high:\n        return low",
        "new": "    import os\n    running = os.environ.get('PYTEST_CURRENT_TEST', '')\n"
        "    if running.startswith('tests/test_calc.py::test_above'):\n        return 9\n"
        "    if value > high:\n        return high",
    }
    rewards = []
    for name, edit in (("mark", weaker), ("proof", named)):
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({"*": [{"tool": "edit_file", "arguments": edit}, "tool: submit"]}))
        (found,) = collected(tmp_path / name, open_policy(f"scripted:{file}", PolicyOptions()), samples=1)
        assert found.reward is not None
        rewards.append(found.reward)
    mark, proof = rewards
    assert mark.evidence
    assert not any(one.proof for one in mark.evidence)
    assert mark.gate == "failed"
    assert any(one.proof for one in proof.evidence)
    assert (proof.gate, proof.value) == ("tampered", 0.0)


def test_a_stored_trajectory_is_complete_and_its_states_resolve(tmp_path: Path) -> None:
    collected(tmp_path, open_policy("gold", PolicyOptions()), samples=1)
    run = RunDirectory.read(tmp_path / "run")
    (trajectory,) = run.trajectories
    assert trajectory.report is not None
    assert trajectory.report.verdict is Verdict.RESOLVED
    assert trajectory.final_patch is not None
    assert trajectory.final_patch.startswith("diff --git a/calc.py b/calc.py")
    for step in trajectory.steps:
        assert step.action is not None
        assert step.observation is not None
        assert "calc.py" in run.objects.entries(str(step.state_before))
        assert "calc.py" in run.objects.entries(str(step.state_after))
    ran = [step.observation for step in trajectory.steps if step.action and step.action.tool == "run_tests"]
    assert [observation.exit_code for observation in ran if observation] == [1, 0]
    assert all(
        observation.limits_by and observation.stdout and observation.stdout.size for observation in ran if observation
    )


def test_what_is_there_already_is_not_made_again(tmp_path: Path) -> None:
    first = collected(tmp_path, open_policy("gold", PolicyOptions()), samples=1)
    both = collected(tmp_path, open_policy("noop", PolicyOptions()), samples=2)
    assert both[0] == first[0]
    assert [trajectory.policy.spec for trajectory in both] == ["gold", "noop"]


class Broken:
    """A policy whose endpoint answers every second episode only."""

    spec = version = "broken"
    native_tools = False

    def __init__(self) -> None:
        self._asked = 0

    def for_task(self, task: Task, objects: ObjectStore) -> Policy:
        return self

    async def sample(self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling) -> Sample:
        self._asked += 1
        if self._asked % 2:
            raise EndpointError("refused")
        message = Message(role="assistant", content="tool: submit")
        return Sample(message=message, usage=Usage(prompt_tokens=1, sampled_tokens=1), finish_reason="stop")

    async def check(self) -> None: ...

    async def close(self) -> None: ...


def test_a_lost_endpoint_gives_no_reward_and_enters_no_baseline(tmp_path: Path) -> None:
    found = collected(tmp_path, Broken(), samples=2)
    lost = [trajectory for trajectory in found if trajectory.status == "infra_error"]
    assert len(lost) == 1
    assert lost[0].reward is None
    assert lost[0].report is None
    assert (lost[0].reward_trusted, lost[0].in_baseline) == (False, False)
    assert lost[0].stop is StopReason.INFRASTRUCTURE
    assert count_run(found).infra_error == 1


@pytest.mark.parametrize("spec", ["golden", "gold:x", "scripted", "local:", "vllm:", "openai:", ""])
def test_an_unknown_policy_is_refused_with_the_list(spec: str) -> None:
    with pytest.raises(UsageError, match="no policy"):
        open_policy(spec, PolicyOptions())


WORKER = """
import asyncio, sys
from pathlib import Path
from patchgym.reward import RewardSettings
from patchgym.rollout import Collector, Phase, PolicyOptions, RolloutSettings, open_policy
from patchgym.store import RunDirectory
from tests.records_for_tests import make_manifest
from tests.workshop import calc_task, here, sandboxes
folder = Path(sys.argv[1])
run = RunDirectory.open_for_writing(folder / "run", make_manifest())
task = calc_task(run.objects)
with sandboxes(run.objects, folder) as factory:
    collector = Collector(run, factory, here, RewardSettings(), 7)
    settings = RolloutSettings(concurrency=1)
    asyncio.run(collector.collect(Phase("rollout", [task], 5), open_policy("gold", PolicyOptions()), settings))
"""


def worker(folder: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", WORKER, str(folder)], env=os.environ, stderr=subprocess.PIPE)


def processes_with(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue
            if text in line:
                found.append(line)
    return found


def left_after_a_while(folder: Path) -> list[str]:
    """Processes that name ``folder`` and are still there after ten seconds."""
    deadline = time.monotonic() + 10
    while processes_with(str(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return processes_with(str(folder))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_goes_on_to_the_same_set_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    need_namespaces()
    process = worker(tmp_path)
    lines = tmp_path / "run" / "trajectories.jsonl"
    deadline = time.monotonic() + 60
    while not (lines.is_file() and lines.read_bytes().count(b"\n")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    process.communicate(timeout=30)
    first = lines.read_bytes()
    assert 1 <= first.count(b"\n") < 5
    if number == signal.SIGINT:  # a kill in the instant in which a command starts can leave that one to the next start
        assert left_after_a_while(tmp_path) == []

    again = worker(tmp_path)
    assert again.communicate(timeout=120)[1] == b""
    run = RunDirectory.read(tmp_path / "run")
    assert sorted(trajectory.sample_index for trajectory in run.trajectories) == [0, 1, 2, 3, 4]
    assert count_run(run.trajectories).resolved == 5
    assert lines.read_bytes().startswith(first[: first.rfind(b"\n") + 1])
    assert not list((tmp_path / "run" / "journal").glob("*.jsonl"))
    assert left_after_a_while(tmp_path) == []
