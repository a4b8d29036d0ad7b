"""A package of our own, all the way to a task set: real sandbox, real grader, no download."""

import asyncio
import re
import signal
from pathlib import Path

import pytest

from patchgym.config import validated
from patchgym.content import ObjectStore, apply_patch
from patchgym.errors import ConfigError, DataError, UsageError
from patchgym.records import Task, TaskSetManifest
from patchgym.sandbox import NamespaceSandboxes
from patchgym.tasks import TaskSet, TaskSetRecipe
from patchgym.tasks.build import Progress, build_task_set
from patchgym.tasks.ledger import Ledger, Settled
from patchgym.tasks.recipe import BugSettings
from patchgym.tasks.sources.candidates import changed_functions
from patchgym.testrun import function_of
from tests.tasks.minipack import FIXED, SOURCE, mini_catalog
from tests.workshop import here, need_namespaces

FLAKY = "tests/test_scale.py::test_flaky"
OPERATORS = ("arithmetic", "boundary", "comparison", "negate_condition", "swap_arguments", "wrong_return")
RECIPE = TaskSetRecipe(
    name="mini",
    seed=3,
    train=("mini==1.0",),
    heldout=("mini==1.1",),
    pairs=("mini==1.0..1.1", "same==1.0..1.1"),
    train_per_release=2,
    heldout_per_release=1,
    heldout_functions=0.5,
    bugs=BugSettings(operators=OPERATORS, tries_per_task=4),
    proof_runs=2,
)


def build(recipe: TaskSetRecipe, out: Path, on_progress: Progress = lambda stage, done, total: None) -> TaskSetManifest:
    """Build with real sandboxes whose cache lies beside ``out``."""
    need_namespaces()
    factories: list[NamespaceSandboxes] = []

    def factory_for(objects: ObjectStore) -> NamespaceSandboxes:
        factories.append(NamespaceSandboxes(objects, cache=out.parent / "cache"))
        return factories[-1]

    catalog = mini_catalog(out.parent)
    try:
        return asyncio.run(
            build_task_set(recipe, out, factory_for=factory_for, build=here, catalog=catalog, on_progress=on_progress)
        )
    finally:
        for factory in factories:
            factory.close()


@pytest.fixture(scope="module")
def events() -> list[tuple[str, int, int]]:
    return []


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, int, int]]) -> TaskSet:
    """The mini task set, built once."""
    out = tmp_path_factory.mktemp("build") / "set"
    build(RECIPE, out, lambda *event: events.append(event))
    return TaskSet.load(out)


def test_the_set_has_what_the_recipe_asks_for(built: TaskSet) -> None:
    assert [(task.split, task.source.kind) for task in built.tasks] == [
        ("train", "release_pair"),
        ("train", "synthetic"),
        ("train", "synthetic"),
        ("heldout", "synthetic"),
    ]
    assert {task.source.version for task in built.split("train")} == {"1.0"}
    assert {task.source.version for task in built.split("heldout")} == {"1.1"}


def test_every_task_is_proved(built: TaskSet) -> None:
    for task in built.tasks:
        assert task.validation is not None
        assert task.validation.proved
        assert task.validation.runs == RECIPE.proof_runs


def test_the_funnel_accounts_for_every_candidate(built: TaskSet) -> None:
    manifest = built.manifest
    assert manifest.funnel["candidates"] == len(built.tasks) + sum(manifest.dropped.values())
    assert manifest.funnel["written"] == len(built.tasks)
    assert list(manifest.funnel.values()) == sorted(manifest.funnel.values(), reverse=True)
    assert manifest.dropped["survived"] >= 1  # the release pair that mends nothing


def test_a_flaky_test_decides_nothing(built: TaskSet) -> None:
    for task in built.tasks:
        assert "tests/test_scale.py::test_spread" in (*task.tests.fail_to_pass, *task.tests.pass_to_pass)
        assert FLAKY not in (*task.tests.fail_to_pass, *task.tests.pass_to_pass)


def test_hidden_tests_are_only_in_the_hidden_files(built: TaskSet) -> None:
    for task in built.tasks:
        assert task.view().failing_tests
        assert task.tests.hidden
        seen = {path: built.objects.get(entry.id) for path, entry in built.objects.entries(task.workspace).items()}
        for path, function in map(function_of, task.tests.hidden):
            name = function.rpartition(".")[2].encode() + b"("
            assert name in built.objects.get(task.tests.hidden_files[path])
            assert not [path for path, data in seen.items() if name in data]
        for path, function in map(function_of, task.view().failing_tests):
            assert function.rpartition(".")[2].encode() in seen[path]


def test_the_gold_patch_restores_the_release(built: TaskSet) -> None:
    for task in built.tasks:
        mended = built.objects.entries(apply_patch(built.objects, task.workspace, task.gold_patch))["mini/scale.py"]
        fixed = FIXED if task.source.kind == "release_pair" or task.source.version == "1.1" else SOURCE
        assert built.objects.get(mended.id).decode() == fixed
        assert task.key_files == ("mini/scale.py",)
        assert task.scope.files == 1


def test_the_instruction_tells_the_symptom_of_a_visible_test(built: TaskSet) -> None:
    for task in built.tasks:
        path, function = function_of(task.view().failing_tests[0])
        assert f"{path}::{function.replace('.', '::')}: " in task.instruction
        assert "assert" in task.instruction or "Error" in task.instruction
        for _, hidden in map(function_of, task.tests.hidden):
            assert not re.search(rf"\b{re.escape(hidden.rpartition('.')[2])}\b", task.instruction)


def test_no_function_is_on_both_sides(built: TaskSet) -> None:
    def functions(tasks: tuple[Task, ...]) -> set[str]:
        changed: set[str] = set()
        for task in tasks:
            mended = apply_patch(built.objects, task.workspace, task.gold_patch)
            old, new = (built.objects.entries(tree)["mini/scale.py"].id for tree in (task.workspace, mended))
            changed |= changed_functions(built.objects.get(old).decode(), built.objects.get(new).decode())
        return changed

    assert functions(built.split("train"))
    assert functions(built.split("heldout"))
    assert not functions(built.split("train")) & functions(built.split("heldout"))


def test_progress_is_told_from_first_to_last(built: TaskSet, events: list[tuple[str, int, int]]) -> None:
    assert events[0] == ("sources", 0, 4)
    assert ("sources", 4, 4) in events
    assert [done for stage, done, _ in events if stage == "tasks"][-1] == len(built.tasks)


def test_the_same_recipe_makes_the_same_tasks_however_many_run_at_once(built: TaskSet, tmp_path: Path) -> None:
    fewer = {"concurrency": 1, "pairs": (), "train_per_release": 1, "heldout_per_release": 0}
    build(RECIPE.model_copy(update=fewer), tmp_path / "again")
    (again,) = TaskSet.load(tmp_path / "again").tasks
    first = built.split("train")[1]
    assert again.model_copy(update={"validation": None}) == first.model_copy(update={"validation": None})


@pytest.mark.slow
@pytest.mark.network
def test_a_pinned_package_from_the_index_makes_proved_tasks(tmp_path: Path) -> None:
    recipe = TaskSetRecipe(
        train=("uritemplate==4.2.0",),
        pairs=("parse==1.22.3..1.22.4",),
        train_per_release=1,
        bugs=BugSettings(operators=OPERATORS),
    )
    need_namespaces()
    objects_seen: list[NamespaceSandboxes] = []

    def factory_for(objects: ObjectStore) -> NamespaceSandboxes:
        objects_seen.append(NamespaceSandboxes(objects, cache=tmp_path / "cache"))
        return objects_seen[-1]

    try:
        asyncio.run(build_task_set(recipe, tmp_path / "set", factory_for=factory_for))
    finally:
        objects_seen[0].close()
    pair, planted = TaskSet.load(tmp_path / "set").tasks
    assert (pair.source.kind, planted.source.kind) == ("release_pair", "synthetic")
    assert len(pair.tests.fail_to_pass) == 8
    assert pair.key_files == ("parse/__init__.py",)
    assert all(task.validation is not None and task.validation.proved for task in (pair, planted))


def test_where_nothing_becomes_a_task_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="1 survived"):
        build(TaskSetRecipe(pairs=("same==1.0..1.1",), proof_runs=2), tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_an_interrupted_build_goes_on_to_the_same_set(built: TaskSet, tmp_path: Path) -> None:
    seen: list[int] = []

    def interrupt(stage: str, done: int, total: int) -> None:
        seen.append(done)
        if stage == "tasks" and done == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        build(RECIPE, tmp_path / "set", interrupt)
    assert not (tmp_path / "set").exists()
    settled = (tmp_path / ".set.build" / "ledger.jsonl").read_bytes()
    assert settled.count(b"\n") >= 2

    build(RECIPE, tmp_path / "set")
    again = TaskSet.load(tmp_path / "set")
    assert not (tmp_path / ".set.build").exists()
    assert [task.content_hash() for task in again.tasks] == [task.content_hash() for task in built.tasks]
    assert again.manifest.dropped == built.manifest.dropped
    kept = {line.task.id: line.task for line in map(Settled.model_validate_json, settled.splitlines()) if line.task}
    assert kept
    for task in again.tasks:  # what was proved before was not proved again
        if task.id in kept:
            assert task.validation == kept[task.id].validation


def test_an_unfinished_build_of_another_recipe_is_named_and_kept(tmp_path: Path) -> None:
    with Ledger(tmp_path / ".set.build", RECIPE.model_dump(mode="json")):
        pass
    with pytest.raises(ConfigError, match="These keys differ: seed"):
        build(RECIPE.model_copy(update={"seed": 4}), tmp_path / "set")
    assert (tmp_path / ".set.build" / "recipe.json").is_file()


def test_two_builds_of_one_set_do_not_mix(tmp_path: Path) -> None:
    with Ledger(tmp_path / ".set.build", RECIPE.model_dump(mode="json")), pytest.raises(UsageError, match="Another"):
        build(RECIPE, tmp_path / "set")


def test_a_set_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    with pytest.raises(UsageError, match="exists already"):
        build(RECIPE, tmp_path / "set")


def test_recipes_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no operator swap_argument"):
        build(RECIPE.model_copy(update={"bugs": BugSettings(operators=("swap_argument",))}), tmp_path / "set")
    with pytest.raises(ConfigError, match=r"mini==1\.0 is both for training and held out"):
        build(RECIPE.model_copy(update={"heldout": ("mini==1.0",)}), tmp_path / "set")
    with pytest.raises(ConfigError, match="issues of elsewhere, which is not mined"):
        build(RECIPE.model_copy(update={"issues": {"elsewhere": "issues.jsonl"}}), tmp_path / "set")
    with pytest.raises(ConfigError, match=r"pairs\.0"):
        validated(TaskSetRecipe, {"pairs": ["mini==1.0"]}, "mine")
    with pytest.raises(ConfigError, match=r"train\.0"):
        validated(TaskSetRecipe, {"train": ["mini"]}, "mine")
    with pytest.raises(ConfigError, match="Did you mean heldout"):
        validated(TaskSetRecipe, {"heldouts": []}, "mine")


def test_a_task_whose_fix_stands_elsewhere_in_the_workspace_is_dropped(tmp_path: Path) -> None:
    recipe = RECIPE.model_copy(update={"train": ("twin==1.0",), "heldout": (), "pairs": (), "train_per_release": 1})
    with pytest.raises(DataError, match="readable"):
        build(recipe, tmp_path / "set")
    open_gates = recipe.gates.model_copy(update={"attack": False})
    assert build(recipe.model_copy(update={"gates": open_gates}), tmp_path / "open").funnel["written"] == 1
