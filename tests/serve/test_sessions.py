"""A session over HTTP is a rollout: the same steps, limits, grading and record, and nothing that an agent may not know.

Every test serves a tiny task from this process, with real sandboxes.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import pytest

from patchgym.diagnose.seen import _missing
from patchgym.policy.scripted import ScriptedPolicy
from patchgym.records import Action, Limits, Step, StopReason, Task, Verdict
from patchgym.reward import RewardSettings
from patchgym.rollout import Collector, RolloutSettings
from patchgym.serve.desk import Rules
from patchgym.store import RunDirectory, RunFiles
from tests.records_for_tests import make_manifest
from tests.serve.serving import (
    FIX,
    ONE,
    TOKENS,
    TWO,
    Place,
    at_hand,
    busy,
    none_left,
    opened,
    refused,
    sandboxes_alive,
    stepped,
    until,
)
from tests.workshop import HARD_CODED, calc_task, here, sandboxes

_T = TypeVar("_T")


def served(folder: Path, work: Callable[[Place, httpx2.AsyncClient], Awaitable[_T]], **how: Any) -> _T:
    """What ``work`` comes to, with a client that has the first token where there are tokens."""

    async def run() -> _T:
        async with at_hand(folder, **how) as place, place.client(ONE if "tokens" in how else None) as client:
            return await work(place, client)

    return asyncio.run(run())


def test_a_task_is_solved_graded_and_recorded(tmp_path: Path) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> dict[str, Any]:
        session = await opened(client, policy="qwen@7")
        before = await stepped(client, session, tool="run_tests")
        assert "1 failed" in before["shown"]
        assert not before["done"]
        changed = await stepped(client, session, **FIX, text="The bound is wrong.")
        assert changed["changed_paths"] == ["calc.py"]
        assert changed["left"]["turns"] == 6
        last = await stepped(client, session, tool="submit")
        assert (last["done"], last["stop"]) == (True, "submitted")
        graded: dict[str, Any] = (await client.post(f"{session}/grade")).json()
        assert (await client.post(f"{session}/grade")).json() == graded  # an answer that was lost can be had again
        assert (await client.delete(session)).json()["was"] == "graded"
        return graded

    graded = served(tmp_path, work)
    assert (graded["verdict"], graded["status"]) == ("resolved", "completed")
    assert graded["reward"]["value"] == 1.0
    assert graded["reward"]["terms"]["hidden_fixed"]["raw"] == 1.0
    assert "+        return high" in graded["patch"]
    run = RunDirectory.read(tmp_path / "run")
    kept = run.trajectory(graded["trajectory"])
    assert kept.report is not None
    assert (kept.report.verdict, kept.stop) == (Verdict.RESOLVED, StopReason.SUBMITTED)
    assert (kept.policy.spec, kept.policy.version) == ("client:anyone", "qwen@7")
    assert kept.steps[1].message.content == "The bound is wrong."
    assert (kept.steps[1].usage, kept.steps[1].sampling) == (None, None)  # nobody said
    assert "tokens" not in (kept.reward.terms if kept.reward else {})


def test_what_is_asked_for_over_http_is_what_a_rollout_records(tmp_path: Path) -> None:
    calls = [{"tool": "list_files", "arguments": {}}, {"tool": "run_tests", "arguments": {}}, FIX]

    async def work(place: Place, client: httpx2.AsyncClient) -> str:
        session = await opened(client)
        for call in calls:
            await stepped(client, session, **call)
        name: str = (await client.post(f"{session}/grade")).json()["trajectory"]
        return name

    name = served(tmp_path, work)
    theirs = RunDirectory.read(tmp_path / "run").trajectory(name)
    ours = _rolled_out(tmp_path / "beside", calls)
    assert [_deed(step) for step in theirs.steps] == [_deed(step) for step in ours]


def _rolled_out(folder: Path, calls: list[dict[str, Any]]) -> tuple[Step, ...]:
    run = RunDirectory.open_for_writing(folder / "run", make_manifest())
    task = calc_task(run.objects)
    script = ScriptedPolicy([Action.model_validate(call) for call in calls], "test")

    class Source:
        spec = version = "test"

        def for_task(self, task: Task, objects: object) -> ScriptedPolicy:
            return script

        async def check(self) -> None: ...

        async def close(self) -> None: ...

    with sandboxes(run.objects, folder) as factory:
        collector = Collector(run, factory, here, RewardSettings(), 0)
        made = asyncio.run(collector.attempt("test", task, 0, Source(), RolloutSettings()))
    run.close()
    return made.steps


def _deed(step: Step) -> tuple[object, ...]:
    seen = step.observation
    assert step.action is not None
    assert seen is not None
    shown = [line for line in seen.shown.splitlines() if " in " not in line]  # how long pytest took
    return step.action.tool, step.action.arguments, shown, seen.ok, seen.tests, step.state_before, step.state_after


def test_no_hidden_test_and_no_solution_is_ever_told(tmp_path: Path) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> list[str]:
        told = [(await client.get(path)).text for path in ("/tasks", "/tasks/calc-1", "/stats", "/openapi.json", "/")]
        for content in (None, HARD_CODED):
            answer = await client.post("/sessions", json={"task": "calc-1"})
            told.append(answer.text)
            session = f"/sessions/{answer.json()['session']}"
            told.append(json.dumps(await stepped(client, session, tool="run_tests", arguments={"tests": "all"})))
            if content is not None:
                action = {"path": "calc.py", "content": content}
                told.append(json.dumps(await stepped(client, session, tool="write_file", arguments=action)))
            told += [(await client.post(f"{session}/grade")).text, (await client.get(session)).text]
        return told

    told = served(tmp_path, work)
    for text in told:
        for secret in ("far_above", "return the other bound", "gold", "value > high:\\n+        return high"):
            assert secret not in text
    # Those names are what the server's own record holds of the same gradings.
    assert (tmp_path / "run" / "trajectories.jsonl").read_text().count("test_far_above") > 2


def test_a_call_that_cannot_be_done_is_a_step_and_too_many_end_the_episode(tmp_path: Path) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        session = await opened(client)
        first = await stepped(client, session, tool="dance")
        assert "There is no tool 'dance'" in first["shown"]
        assert (first["ok"], first["seconds"], first["left"]["turns"]) == (False, None, 7)
        assert "needs the argument path" in (await stepped(client, session, tool="read_file"))["shown"]
        last = await stepped(client, session, tool="read_file", arguments={"path": "calc.py", "start": "soon"})
        assert (last["done"], last["stop"]) == (True, "protocol")

    served(tmp_path, work)


def test_limits_end_the_episode_and_a_step_after_the_end_is_refused(tmp_path: Path) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        session = await opened(client)
        assert not (await stepped(client, session, command="true"))["done"]
        last = await stepped(client, session, command="exit 3")
        assert (last["done"], last["stop"], last["exit_code"], last["ok"]) == (True, "turn_limit", 3, True)
        refused(await client.post(f"{session}/step", json={"command": "true"}), 409, "over")
        assert (await client.post(f"{session}/grade")).json()["stop"] == "turn_limit"

    served(tmp_path, work, limits=Limits(turns=2, command_seconds=20))


def test_tokens_count_where_the_client_tells_them(tmp_path: Path) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        session = await opened(client)
        told = {"prompt_tokens": 50, "sampled_tokens": 30}
        assert (await stepped(client, session, command="true", usage=told))["left"]["tokens"] == 10
        last = await stepped(client, session, command="true", usage=told)
        assert (last["stop"], last["left"]["tokens"]) == ("token_limit", 0)
        await client.post(f"{session}/grade")
        silent = await opened(client, sampling={"temperature": 0.7})
        assert (await stepped(client, silent, command="true"))["left"]["tokens"] is None
        await client.post(f"{silent}/grade")

    served(tmp_path, work, limits=Limits(turns=8, tokens=40, command_seconds=20))
    counted, silent = RunDirectory.read(tmp_path / "run").trajectories
    assert [step.usage.sampled_tokens for step in counted.steps if step.usage] == [30, 30]
    assert [step.sampling.temperature for step in silent.steps if step.sampling] == [0.7, 0.7]
    assert not any(_missing(one) for one in (counted, silent))  # diagnose takes them as whole


def test_an_agent_has_the_tools_that_its_client_asked_for(tmp_path: Path) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        answer = await client.post("/sessions", json={"task": "calc-1", "tools": ["edit_line"]})
        assert [tool["name"] for tool in answer.json()["tools"]] == ["edit_line", "submit"]
        shown = (await stepped(client, f"/sessions/{answer.json()['session']}", command="id"))["shown"]
        assert "no tool 'run_command'" in shown
        refused(await client.post("/sessions", json={"task": "calc-1", "tools": ["dance"]}), 422, "invalid")

    served(tmp_path, work)


def test_names_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        session = await opened(client)
        touched = await stepped(
            client, session, command="touch \"$(printf 'a\\377')\" \"$(printf 'tests/b\\377.pyc')\""
        )
        assert touched["changed_paths"] == ["a\\udcff", "tests/b\\udcff.pyc"]
        assert "a\\udcff" in (await stepped(client, session, tool="list_files"))["shown"]
        graded = (await client.post(f"{session}/grade")).json()
        assert graded["verdict"] == "unresolved"
        assert "a\\377" in graded["patch"]

    served(tmp_path, work)


def test_one_thing_at_a_time(tmp_path: Path) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        session = await opened(client)
        slow = asyncio.create_task(stepped(client, session, command="sleep 2"))
        await until(lambda: busy(client, session))
        for what in ("step", "grade"):
            answer = await client.post(f"{session}/{what}", json={"command": "true"})
            refused(answer, 409, "busy")
            assert answer.headers["retry-after"] == "1"
        assert (await slow)["exit_code"] == 0

    served(tmp_path, work)


def test_closing_ends_what_is_under_way_and_leaves_no_sandbox(tmp_path: Path) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        session = await opened(client)
        await stepped(client, session, command="true")
        assert sandboxes_alive()
        slow = asyncio.create_task(client.post(f"{session}/step", json={"command": "sleep 600"}))
        await until(lambda: busy(client, session))
        assert (await client.delete(session)).json()["was"] == "unfinished"
        refused(await slow, 409, "closed")
        await until(none_left)
        refused(await client.get(session), 404, "no_session")

    served(tmp_path, work, limits=Limits(command_seconds=600))
    (left,) = RunFiles(tmp_path / "run").beginnings()
    assert left.interrupted


def test_sessions_of_others_are_not_there(tmp_path: Path) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        session = await opened(client)
        async with place.client(TWO) as other:
            asked = [
                await other.get(session),
                await other.post(f"{session}/step", json={"command": "id"}),
                await other.post(f"{session}/grade"),
                await other.delete(session),
            ]
            made_up = await other.get("/sessions/" + "x" * 24)
        for answer in asked:
            refused(answer, 404, "no_session")
            assert answer.json() == made_up.json()
        assert (await client.get(session)).json()["turns"] == 0

    served(tmp_path, work, tokens=TOKENS)


def test_a_client_that_never_closes_is_reaped(tmp_path: Path) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        session = await opened(client)
        await stepped(client, session, command="sleep 500 & true")

        async def gone() -> bool:
            return not (await client.get("/stats")).json()["alive"]

        await until(gone)
        assert (await client.get("/stats")).json()["reaped"] == 1
        await until(none_left)
        refused(await client.post(f"{session}/step", json={"command": "id"}), 404, "no_session")

    served(tmp_path, work, rules=Rules(idle_seconds=1.0))


def test_a_thousand_resets_at_once_are_bounded(tmp_path: Path) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        asked = [client.post("/sessions", json={"task": "calc-1"}) for _ in range(1000)]
        answers = await asyncio.gather(*asked)
        opened = [answer for answer in answers if answer.status_code == 201]
        others = [answer for answer in answers if answer.status_code != 201]
        assert len(opened) == 3
        for answer in others:
            refused(answer, 429, "too_many")
            assert int(answer.headers["retry-after"]) >= 1
        stats = (await client.get("/stats")).json()
        assert (stats["alive"], stats["opened"], stats["refused"]) == (3, 3, 997)

    served(tmp_path, work, rules=Rules(most_sessions=3, spare_requests=20))


def test_one_client_cannot_take_every_session(tmp_path: Path) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        session = await opened(client)
        refused(await client.post("/sessions", json={"task": "calc-1"}), 429, "too_many")
        async with place.client(TWO) as other:
            await opened(other)
        await client.delete(session)
        await opened(client)

    served(tmp_path, work, tokens=TOKENS, rules=Rules(most_sessions=2, per_client=1))


def test_the_end_of_the_server_closes_every_session(tmp_path: Path) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        for _ in range(3):
            await stepped(client, await opened(client), command="sleep 500 & true")

    served(tmp_path, work)
    asyncio.run(until(none_left))
    assert sum(one.interrupted for one in RunFiles(tmp_path / "run").beginnings()) == 3


def test_a_server_that_is_started_again_goes_on_with_its_run(tmp_path: Path) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> str:
        name: str = (await client.post(f"{await opened(client)}/grade")).json()["trajectory"]
        return name

    assert [served(tmp_path, work) for _ in range(2)] == ["serve.calc-1.0", "serve.calc-1.1"]
    assert len(RunDirectory.read(tmp_path / "run").ids) == 2


@pytest.mark.parametrize("name", ["calc-2", "../../etc/passwd", "x" * 300, "‮"])
def test_a_task_that_does_not_exist_is_refused(tmp_path: Path, name: str) -> None:
    async def work(place: Place, client: httpx2.AsyncClient) -> None:
        refused(await client.post("/sessions", json={"task": name}), 404, "no_task")
        refused(await client.get("/tasks", params={"after": name}), 404, "no_task")

    served(tmp_path, work)
