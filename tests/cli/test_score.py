"""``patchgym score`` and ``patchgym diagnose --reward`` on a real run, and what they refuse."""

import asyncio
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from patchgym.cli.workshop import log_rewards
from patchgym.config import validated
from patchgym.records import Evidence, Reward, Trajectory
from patchgym.reward import RewardSettings, rescored, settle
from patchgym.rollout import Collector, Phase, PolicyOptions, RolloutSettings, open_policy
from patchgym.rollout.strategies import SearchSettings
from patchgym.store import RunDirectory
from tests.cli.test_cli import patchgym
from tests.records_for_tests import make_manifest, make_report, make_trajectory
from tests.workshop import calc_task, here, sandboxes

SAMPLES = 6
TREES = 1


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a noisy policy with a search tree, really made."""
    folder = tmp_path_factory.mktemp("score")
    run = RunDirectory.open_for_writing(folder / "run", make_manifest(config={"samples": SAMPLES}))
    try:
        task = calc_task(run.objects)
        run.keep_tasks([task])
        with sandboxes(run.objects, folder) as factory:
            collector = Collector(run, factory, here, RewardSettings(), 7)
            source, settings = open_policy("noisy:0.4", PolicyOptions()), RolloutSettings(concurrency=2)
            asyncio.run(collector.collect(Phase("rollout", [task], SAMPLES), source, settings))
            search = SearchSettings(nodes=8, branches=2)
            asyncio.run(collector.search(Phase("search", [task], TREES), source, settings, search))
    finally:
        run.close()
    return folder / "run"


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(original, tmp_path / "run")
    return tmp_path / "run"


def scored(*arguments: str, cwd: Path, code: int = 0) -> "subprocess.CompletedProcess[str]":
    done = patchgym(*arguments, cwd=cwd)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def rewards(path: Path) -> dict[str, bytes]:
    """The bytes of each stored reward, by trajectory."""
    lines = (path / "trajectories.jsonl").read_text().splitlines()
    return {json.loads(line)["id"]: json.dumps(json.loads(line)["reward"]).encode() for line in lines}


def test_every_reward_of_a_run_is_recomputed_byte_for_byte(original: Path) -> None:
    stored = RunDirectory.read(original)
    tasks = stored.tasks()
    found = list(stored.trajectories)
    assert len(found) > SAMPLES
    lines = (original / "trajectories.jsonl").read_bytes() + (original / "trees.jsonl").read_bytes()
    for one in found:
        again = rescored(one, tasks[one.task_id], RewardSettings())
        assert again is not None
        assert again.model_dump_json().encode() in lines


def test_nothing_changes_under_the_runs_own_settings(run: Path, tmp_path: Path) -> None:
    done = scored("score", "run", "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert (report["changed"], report["mean_before"]) == (0, report["mean_after"])
    scored("score", "run", "--out", "again", cwd=tmp_path)
    for name in ("trajectories.jsonl", "trees.jsonl", "tasks.jsonl"):
        assert (tmp_path / "again" / name).read_bytes() == (run / name).read_bytes()


def test_another_recipe_shows_what_would_change_and_writes_nothing(run: Path, tmp_path: Path) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    (tmp_path / "mine.toml").write_text("[reward]\nsecond_layer = 0.0\n")
    done = scored("score", "run", "--recipe", "mine.toml", "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert report["changed"] > 0
    assert report["mean_after"] > report["mean_before"]
    assert report["log"]["shaping_advantage"] == 0.0
    assert all(move["why"] for move in report["largest"])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, "mine.toml"])


def test_a_cleaned_run_is_scored_as_the_run_that_it_was_made_of(run: Path, tmp_path: Path) -> None:
    scored("score", "run", "--set", "reward.weights.steps=5", "--out", "new", cwd=tmp_path)
    scored("traces", "clean", "new", "--out", "cleaned", cwd=tmp_path)
    report = json.loads(scored("score", "cleaned", "--json", cwd=tmp_path).stdout)
    assert (report["reward"]["weights"]["steps"], report["changed"]) == (5, 0)


def test_a_run_with_new_rewards_is_whole_and_scores_itself_the_same(run: Path, tmp_path: Path) -> None:
    scored("score", "run", "--set", "reward.weights.steps=5", "--out", "new", cwd=tmp_path)
    old, new = RunDirectory.read(run), RunDirectory.read(tmp_path / "new")
    assert new.ids == old.ids
    assert (new.tree_ids, new.problems) == (old.tree_ids, [])
    for one in new.trajectories:
        assert one.final_state is not None
        assert new.objects.entries(one.final_state)
        assert one.reward is not None
        assert one.reward.terms["steps"].weight == 5
    rows = [row for row in new.metrics() if row["kind"] == "reward"]
    assert [row["name"] for row in rows] == ["rollout", "search"]
    report = json.loads(scored("score", "new", "--json", cwd=tmp_path).stdout)
    assert report["changed"] == 0
    assert report["reward"]["weights"]["steps"] == 5


def test_evidence_stays_with_a_recomputed_reward(original: Path) -> None:
    stored = RunDirectory.read(original)
    one = stored.trajectory(stored.ids[0])
    assert one.reward is not None
    marked = one.reward.model_copy(update={"evidence": (Evidence(kind="conftest", proof=True),)})
    again = rescored(one.model_copy(update={"reward": marked}), stored.tasks()[one.task_id], RewardSettings())
    assert again is not None
    assert (again.gate, again.value, again.evidence) == ("tampered", 0.0, marked.evidence)


def test_who_is_marked_is_listed_for_a_person(tmp_path: Path, original: Path) -> None:
    marked = Evidence(kind="literals", where="calc.py:6", why="It returns what a test expects.")
    new = written(tmp_path, original, evidence=(marked,))
    done = scored("score", str(new), cwd=tmp_path)
    assert "For a person to look at" in done.stdout
    assert "literals at calc.py:6" in " ".join(done.stdout.split())


def written(folder: Path, original: Path, evidence: tuple[Evidence, ...]) -> Path:
    """A run of the first trajectory of another one, with evidence against it."""
    old = RunDirectory.read(original)
    new = RunDirectory.open_for_writing(folder / "marked", make_manifest())
    try:
        one = old.trajectory(old.ids[0])
        assert one.reward is not None
        new.append(one.model_copy(update={"reward": one.reward.model_copy(update={"evidence": evidence})}))
        new.keep_tasks(old.tasks().values())
    finally:
        new.close()
    return folder / "marked"


def test_diagnose_says_the_verdict_and_exits_by_it(run: Path, tmp_path: Path) -> None:
    done = patchgym("diagnose", "--reward", "run", "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert done.returncode == (1 if report["alarm"] else 0)
    assert [found["check"] for found in report["findings"]] == [
        "samples",
        "grading",
        "bounds",
        "process signal",
        "groups",
        "phantom advantages",
        "terms",
    ]
    shown = patchgym("diagnose", "--reward", "run", cwd=tmp_path)
    assert report["verdict"] in " ".join(shown.stdout.split())


def test_rewards_that_a_run_is_settled_to_are_those_that_score_reports(run: Path, tmp_path: Path) -> None:
    values = [one.reward.value for one in settle(RunDirectory.read(run).trajectories) if one.reward]
    known = [value for value in values if value is not None]
    report = json.loads(scored("score", "run", "--json", cwd=tmp_path).stdout)
    assert report["mean_after"] == pytest.approx(sum(known) / len(known))


def test_a_phase_logs_its_terms_once_however_often_it_is_gone_through(tmp_path: Path) -> None:
    new = RunDirectory.open_for_writing(tmp_path / "run", make_manifest())
    try:
        found = [make_trajectory(place, report=make_report(), reward=float(place)) for place in range(2)]
        log_rewards(new, "round-1", found)
        log_rewards(new, "round-1", found)
        (row,) = new.metrics()
    finally:
        new.close()
    assert (row["kind"], row["name"]) == ("reward", "round-1")


def bare(folder: Path, *trajectories: Trajectory) -> Path:
    new = RunDirectory.open_for_writing(folder / "run", make_manifest())
    for one in trajectories:
        new.append(one)
    new.close()
    return folder / "run"


@pytest.mark.parametrize("command", [("score",), ("diagnose", "--reward")], ids=["score", "diagnose"])
def test_an_empty_run_is_refused(tmp_path: Path, command: tuple[str, ...]) -> None:
    bare(tmp_path)
    assert "holds no trajectories" in scored(*command, "run", cwd=tmp_path, code=2).stderr


@pytest.mark.parametrize("command", [("score",), ("diagnose", "--reward")], ids=["score", "diagnose"])
def test_a_run_that_is_being_written_is_refused(tmp_path: Path, command: tuple[str, ...]) -> None:
    writing = RunDirectory.open_for_writing(tmp_path / "run", make_manifest())
    try:
        writing.append(make_trajectory(0, report=make_report(), reward=0.0))
        assert "is still being written" in scored(*command, "run", cwd=tmp_path, code=2).stderr
    finally:
        writing.close()


def test_a_run_without_rewards_has_nothing_to_diagnose(tmp_path: Path) -> None:
    bare(tmp_path, make_trajectory(0))
    assert "has no rewards" in scored("diagnose", "--reward", "run", cwd=tmp_path, code=2).stderr


def test_a_run_without_its_tasks_cannot_be_scored_nor_graded_again(tmp_path: Path) -> None:
    bare(tmp_path, make_trajectory(0, report=make_report(), reward=0.0))
    assert "does not hold its tasks" in scored("score", "run", cwd=tmp_path, code=2).stderr
    again = scored("diagnose", "--reward", "run", "--regrade", "2", cwd=tmp_path, code=2)
    assert "can be graded again" in again.stderr


def test_a_score_into_a_place_that_is_taken_is_refused(run: Path, tmp_path: Path) -> None:
    before = rewards(run)
    assert "is there already" in scored("score", "run", "--out", "run", cwd=tmp_path, code=2).stderr
    assert rewards(run) == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[reward.weights]\nstep = 1.0\n", "Did you mean reward.weights.steps?"),
        ("[reward]\nsecond_layer = 0.6\n", "would get min(0.5, 2 x 0.3 x 9/10) = 0.5000"),
        ("[reward]\nhalf = nan\n", "finite"),
        ("[reward\n", "not valid TOML"),
    ],
)
def test_a_wrong_recipe_is_refused_with_its_reason(run: Path, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    done = scored("score", "run", "--recipe", "mine.toml", cwd=tmp_path, code=2)
    assert said in done.stderr
    assert done.stdout == ""


def test_an_override_of_anything_but_rewards_is_refused(run: Path, tmp_path: Path) -> None:
    assert "Write reward.half=0.4" in scored("score", "run", "--set", "half=0.4", cwd=tmp_path, code=2).stderr


def test_a_run_that_records_its_rewards_is_scored_by_them(tmp_path: Path, original: Path) -> None:
    settings = validated(RewardSettings, {"half": 0.1}, "mine")
    old = RunDirectory.read(original)
    manifest = make_manifest(config={"reward": settings.model_dump(mode="json")})
    new = RunDirectory.open_for_writing(tmp_path / "own", manifest)
    tasks = old.tasks()
    for one in old.trajectories:
        made: Reward | None = rescored(one, tasks[one.task_id], settings)
        new.append(one.model_copy(update={"reward": made, "tree_id": None}))
    new.keep_tasks(tasks.values())
    new.close()
    assert json.loads(scored("score", "own", "--json", cwd=tmp_path).stdout)["changed"] == 0
