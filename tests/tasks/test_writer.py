"""Bugs and statements that a model writes, through a real endpoint on loopback."""

import asyncio
import re
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from patchgym.content import ObjectStore
from patchgym.policy.scripted import ScriptedPolicy
from patchgym.records import Environment, TaskSetManifest
from patchgym.sandbox import NamespaceSandboxes
from patchgym.sandbox.environments import build_environment
from patchgym.tasks import TaskSet, TaskSetRecipe
from patchgym.tasks.bugs.symptoms import Symptom
from patchgym.tasks.build import build_task_set
from patchgym.tasks.recipe import BugSettings, WriterSettings
from patchgym.tasks.writer import Writer
from tests.policy.endpoint import completion, endpoint, say
from tests.tasks.minipack import mini_catalog
from tests.workshop import here, need_namespaces

REPORT = "Values outside the range come back wrong: what lies beyond the upper bound should end on it."


def written(asked: str) -> str:
    """What the model says: a broken function for a function, a report for symptoms."""
    if "Write the bug report" in asked:
        return REPORT
    function = re.search(r"```python\n(.*?)```", asked, re.DOTALL)
    assert function is not None
    broken = function[1].replace("max(", "min(").replace("* 100", "* 10").replace("return high", "return low")
    return f"```python\n{broken}```"


def reply(handler: BaseHTTPRequestHandler) -> None:
    """The endpoint's answer to what this very request asks."""
    body = vars(handler)["asked"]
    say(200, completion(written(body["messages"][-1]["content"])))(handler)


def build(out: Path, url: str) -> TaskSetManifest:
    need_namespaces()
    factories: list[NamespaceSandboxes] = []

    def factory_for(objects: ObjectStore) -> NamespaceSandboxes:
        factories.append(NamespaceSandboxes(objects, cache=out.parent / "cache"))
        return factories[-1]

    def tools(environment: Environment) -> Path:
        return build_environment(environment) if "coverage" in environment.lock else here(environment)

    recipe = TaskSetRecipe(
        train=("mini==1.0",),
        train_per_release=2,
        proof_runs=1,
        bugs=BugSettings(tries_per_task=2),
        writer=WriterSettings(model="served", base_url=url, bugs=3),
    )
    try:
        return asyncio.run(
            build_task_set(recipe, out, factory_for=factory_for, build=tools, catalog=mini_catalog(out.parent))
        )
    finally:
        factories[0].close()


def test_a_models_bugs_and_statements_become_proved_tasks(tmp_path: Path) -> None:
    with endpoint(reply) as fake:
        manifest = build(tmp_path / "set", fake.url)
        asked = len(fake.asked)
    tasks = TaskSet.load(tmp_path / "set").tasks
    assert len(tasks) == 2
    written_by_model = [task for task in tasks if "served" in (task.source.change or "")]
    assert written_by_model
    for task in tasks:
        assert task.source.statement == "model"
        assert task.instruction.startswith(REPORT)
        assert task.validation is not None
        assert task.validation.proved
    assert asked >= 3
    assert all(reason.startswith("model_") for reason in manifest.refused)


def test_an_endpoint_that_is_not_there_costs_its_answers_and_not_the_build(tmp_path: Path) -> None:
    with endpoint(reply) as fake:
        url = fake.url
    manifest = build(tmp_path / "set", url)
    tasks = TaskSet.load(tmp_path / "set").tasks
    assert len(tasks) == 2
    assert {task.source.statement for task in tasks} == {"failing_tests"}
    assert manifest.refused["model_no_answer"] >= 3


def test_what_was_asked_before_is_not_asked_again(tmp_path: Path) -> None:
    settings = WriterSettings(model="served")
    policy = ScriptedPolicy(["The upper bound is not kept."], "script")
    symptom = Symptom("value", name="clamp", call="clamp(12, 0, 9)", expected="9", got="12")

    async def told() -> list[str]:
        first = await Writer(settings, tmp_path / "answers.jsonl", policy).statement("mini", [symptom], [])
        silent = ScriptedPolicy([], "gone")
        second = await Writer(settings, tmp_path / "answers.jsonl", silent).statement("mini", [symptom], [])
        return [first, second]

    assert asyncio.run(told()) == ["The upper bound is not kept."] * 2


def test_a_statement_that_tells_the_fix_is_not_taken(tmp_path: Path) -> None:
    writer = Writer(
        WriterSettings(model="served"), tmp_path / "answers.jsonl", ScriptedPolicy(["Use min(value, high)."], "s")
    )
    symptom = Symptom("value", name="clamp", call="clamp(12, 0, 9)", expected="9", got="12")
    assert asyncio.run(writer.statement("mini", [symptom], ["min(value, high)"])) == ""
    assert writer.refused == {"model_leaks": 1}
