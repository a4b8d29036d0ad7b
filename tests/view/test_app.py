"""Pages answer to whoever has the token, from this machine, and say clearly what they cannot show."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from patchgym.view.site import Extras, Site
from tests.records_for_tests import make_step, make_trajectory
from tests.view.making import TOKEN, graded, looking_at, loop_run, page, small_tree, states_run, write_run

_EVERY = ("", "attempts", "tasks", "trees", "checklist", "data", "state")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, Site]]:
    """A loop, a run with states, a run with a search tree and a run with a name of several words."""
    folder = tmp_path_factory.mktemp("runs")
    loop, states = loop_run(folder / "loop"), states_run(folder / "states")
    searched = write_run(folder / "searched", [], trees=[small_tree()])
    spaced = write_run(folder / "a name & of ‮words", [graded(0)])
    with looking_at(loop, states, searched, spaced, index=folder / "index") as found:
        yield found


@pytest.fixture
def client(site: tuple[TestClient, Site]) -> TestClient:
    return site[0]


ATTEMPT = "round-1.demo-1.0"


@pytest.mark.parametrize("address", ["/", "/wrong/", f"/{TOKEN[:-1]}/", f"/{TOKEN}x/", "/assets/style.css"])
def test_without_the_token_nothing_is_answered(client: TestClient, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 403
    assert "token" in answer.text
    assert "loop" not in answer.text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8421", "127.0.0.1.evil.example", "10.0.0.1", ""])
def test_another_host_is_refused(client: TestClient, host: str) -> None:
    assert client.get(f"/{TOKEN}/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1:8421", "localhost:9000", "[::1]:1", "localhost"])
def test_every_name_of_the_loopback_is_answered(client: TestClient, host: str) -> None:
    assert client.get(f"/{TOKEN}/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_pages_are_only_looked_at(client: TestClient, method: str) -> None:
    assert client.request(method, f"/{TOKEN}/").status_code == 405


def test_pages_may_load_nothing_from_outside_and_be_framed_by_nobody(client: TestClient) -> None:
    for address in (f"/{TOKEN}/", f"/{TOKEN}/run/loop/", f"/{TOKEN}/run/none/", "/wrong"):
        headers = client.get(address).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"


@pytest.mark.parametrize("run", ["loop", "states", "searched", "a%20name%20%26%20of%20%5Cu202ewords"])
@pytest.mark.parametrize("name", _EVERY)
def test_every_page_of_every_run_is_there(client: TestClient, run: str, name: str) -> None:
    text = page(client, f"/run/{run}/{name}")
    assert not re.search(r"""(src|href|action)=["']?(https?:)?//""", text)
    assert " style=" not in text
    assert "<script>" not in text
    assert not re.search(r"\son\w+=", text)


def test_runs_are_compared(client: TestClient) -> None:
    text = page(client, "/")
    assert text.count("<tr>") > 4
    assert "Settings that differ" in text
    assert "command" in text
    assert "Mean reward" in text


def test_some_of_the_runs_are_compared(client: TestClient) -> None:
    text = page(client, "/?run=loop&run=states")
    assert "2 compared" in text
    assert text.count(" checked>") == 2
    assert '<th scope="col">searched</th>' not in text
    assert "No run other is opened here" in page(client, "/?run=other", status=404)


def test_one_run_is_opened_at_once(tmp_path: Path) -> None:
    with looking_at(loop_run(tmp_path / "run"), index=tmp_path / "index") as (client, _):
        answer = client.get(f"/{TOKEN}/", follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/{TOKEN}/run/run/"


def test_filters_and_order_stand_in_the_address(client: TestClient) -> None:
    solved = page(client, "/run/loop/attempts?verdict=resolved&phase=round-2")
    assert ">2 attempts<" in solved
    assert "round-2.demo-1.0" in solved
    assert "round-1.demo-1.0" not in solved
    assert ">6 attempts<" in page(client, "/run/loop/attempts?min=0.5&split=train")
    assert ">0 attempts<" in page(client, "/run/loop/attempts?q=nothing")
    assert ">14 attempts<" in page(client, "/run/loop/attempts?q=DEMO")
    ordered = page(client, "/run/loop/attempts?sort=reward&order=down")
    assert ordered.index("round-3.demo-1.2") < ordered.index("round-1.demo-1.3")
    assert 'value="round-2" selected' in solved


def test_attempts_with_proof_of_hacking_are_found(client: TestClient) -> None:
    found = page(client, "/run/states/attempts?evidence=proof")
    assert ">1 attempts<" in found
    assert ">1 attempts<" in page(client, "/run/states/attempts?evidence=no")


def test_the_way_back_and_on_keeps_the_filters(client: TestClient) -> None:
    text = page(client, "/run/loop/attempt?id=round-2.demo-1.0&verdict=resolved&phase=round-2")
    assert "attempts?phase=round-2&amp;verdict=resolved" in text
    assert "id=round-2.demo-1.1" in text
    assert "id=round-2.demo-1.2" not in text


def test_a_list_of_many_is_shown_page_by_page(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", [graded(n) for n in range(120)])
    with looking_at(path, index=tmp_path / "index") as (client, _):
        first, last = page(client, "/run/run/attempts"), page(client, "/run/run/attempts?page=3")
        assert "Page 1 of 3" in first
        assert "round-1.demo-1.49<" in first
        assert "round-1.demo-1.50<" not in first
        assert "round-1.demo-1.119<" in last
        assert "Page 3 of 3" in page(client, "/run/run/attempts?page=99")


def test_an_attempt_shows_reward_evidence_tests_and_patch(client: TestClient) -> None:
    text = page(client, "/run/states/attempt?id=round-1.demo-1.0")
    for told in ("all tests pass", "conftest.py:1", "it decides tests", "proof", "to be fixed", "-x = 1", "+x = 2"):
        assert told in text


def test_a_step_shows_action_streams_difference_and_tokens(client: TestClient) -> None:
    text = page(client, "/run/states/step?id=round-1.demo-1.0&step=1")
    for told in (
        "edit_file",
        "a warning",
        "-x = 1",
        "exit code 0",
        "1.50 s",
        "all of stdout",
        "Everything that differs",
    ):
        assert told in text
    assert 'class="t0" title="id 11, log-prob -0.001"' in text
    assert 'class="t6 untrained" title="id 13, log-prob -5.000"' in text
    assert '<td class="n">-0.3000</td>' in text


def test_tokens_are_coloured_by_advantage(client: TestClient) -> None:
    text = page(client, "/run/states/step?id=round-1.demo-1.0&step=1&colour=advantage")
    assert "advantage +0.500" in text
    assert 'class="up"' in text


def test_tokens_are_shown_as_text_where_a_tokenizer_is_given(tmp_path: Path) -> None:
    extras = Extras(decode=lambda ids: [f"<{one}>" for one in ids])
    with looking_at(states_run(tmp_path / "run"), index=tmp_path / "index", extras=extras) as (client, _):
        text = page(client, "/run/run/step?id=round-1.demo-1.0&step=1")
    assert "&lt;11&gt;" in text


def test_a_whole_stream_is_shown_page_by_page(client: TestClient) -> None:
    text = page(client, "/run/states/text?id=round-1.demo-1.0&step=1&of=stdout")
    assert "Page 1 of 4" in text
    assert "214.8 KB" in text or "215 KB" in text


def test_files_are_shown_as_they_were_at_that_moment(client: TestClient) -> None:
    address = "/run/states/files?id=round-1.demo-1.0&path=a.py"
    assert "x = 1" in page(client, f"{address}&step=1&at=before")
    assert "x = 2" in page(client, f"{address}&step=1&at=after")
    assert "x = 2" in page(client, address)
    assert "No text." in page(client, "/run/states/files?id=round-1.demo-1.0&path=dir/b.bin")


def test_a_task_is_shown_as_the_agent_saw_it_and_whole_when_asked(client: TestClient) -> None:
    seen, whole = page(client, "/run/states/task?id=demo-1"), page(client, "/run/states/task?id=demo-1&whole=1")
    assert "Two tests fail." in seen
    assert "swap &lt; and &lt;=" not in seen
    assert "swap &lt; and &lt;=" in whole
    assert "Attempts side by side" in seen
    assert "round-1.demo-1.1" in seen
    assert "a.py" in page(client, "/run/states/workspace?task=demo-1")


def test_a_tree_can_be_walked(client: TestClient) -> None:
    text = page(client, "/run/searched/tree?id=tree-1")
    assert 'href="?id=tree-1&amp;node=2#step"' in text
    assert 'class="shared"' in text
    assert "resolved 1.00" in text
    chosen = page(client, "/run/searched/tree?id=tree-1&node=1")
    assert "← Parent" in chosen
    assert "The whole tree" in page(client, "/run/searched/tree?id=tree-1&root=1")
    assert "tree-1.0" in chosen


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("/run/none/", "No run none is opened"),
        ("/run/loop/nothing", "There is no such page"),
        ("/run/loop/attempt", "lacks"),
        ("/run/loop/attempt?id=x", "holds no trajectory x"),
        (f"/run/loop/step?id={ATTEMPT}&step=9", "has no step 9"),
        (f"/run/loop/step?id={ATTEMPT}&step=nine", "no whole number"),
        (f"/run/loop/text?id={ATTEMPT}&step=0&of=passwords", "has no text passwords"),
        ("/run/loop/attempts?sort=bytes%3B", "is not known"),
        ("/run/loop/attempts?min=much", "is no number"),
        ("/run/loop/attempts?min=nan", "is no number"),
        ("/run/loop/attempts?page=-1", "out of range"),
        ("/run/loop/task?id=x", "holds no task x"),
        ("/run/states/files?id=round-1.demo-1.0&path=../../etc/passwd", "There was no file"),
        ("/run/searched/tree?id=x", "holds no tree x"),
        ("/run/searched/tree?id=tree-1&node=77", "has no step 77"),
        ("/run/loop/spotcheck", "No spot check is offered"),
        ("/run/..%2f..%2fetc/", "There is no such page"),
    ],
)
def test_what_cannot_be_shown_is_said_in_words(client: TestClient, address: str, told: str) -> None:
    assert told in page(client, address, status=404)


def test_an_attempt_without_steps_or_states_is_shown(tmp_path: Path) -> None:
    bare = make_trajectory(0).model_copy(update={"final_state": None, "final_patch": None, "sandbox": None})
    stepped = graded(1).model_copy(
        update={"steps": (make_step(0).model_copy(update={"state_before": None, "observation": None, "usage": None}),)}
    )
    with looking_at(write_run(tmp_path / "run", [bare, stepped]), index=tmp_path / "index") as (client, _):
        assert "ended before its first step" in page(client, f"/run/run/attempt?id={bare.id}")
        assert "no states" in page(client, f"/run/run/step?id={stepped.id}&step=0")
        assert "never answered" in page(client, f"/run/run/step?id={stepped.id}&step=0")
        assert "has no states" in page(client, f"/run/run/files?id={bare.id}", status=404)


def test_a_run_that_lost_its_objects_still_shows_its_steps(tmp_path: Path) -> None:
    path = states_run(tmp_path / "run")
    shutil.rmtree(path / "objects")
    with looking_at(path, index=tmp_path / "index") as (client, _):
        assert "edit_file" in page(client, "/run/run/step?id=round-1.demo-1.0&step=1")
        page(client, "/run/run/files?id=round-1.demo-1.0", status=404)


def test_damaged_lines_and_other_versions_are_shown(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", [graded(0)])
    with (path / "trajectories.jsonl").open("a") as file:
        file.write("<script>nonsense</script>\n")
    broken = write_run(tmp_path / "broken", [graded(0)])
    (broken / "run.json").write_text("{")
    with looking_at(path, broken, index=tmp_path / "index") as (client, _):
        assert "1 lines could not be read" in page(client, "/run/run/")
        assert "unreadable" in page(client, "/run/broken/")
        assert "broken: run.json: not JSON" in page(client, "/")


def test_ten_runs_are_shown_at_once(tmp_path: Path) -> None:
    paths = [loop_run(tmp_path / f"{n}" / "same") for n in range(10)]
    with looking_at(*paths, index=tmp_path / "index") as (client, site):
        assert len(site.runs) == 10
        assert page(client, "/").count("same-10") > 1
        page(client, "/run/same-10/")


def test_evaluations_that_a_run_keeps_are_shown_with_what_they_can_tell(tmp_path: Path) -> None:
    path = loop_run(tmp_path / "run")
    (path / "report.json").write_text(
        '{"evaluations": {"eval-1": {"policy_version": "v1", "tasks": 6, "infra_failures": 2, "mean_reward": 0.25,'
        ' "pass_at_1": {"value": 0.5, "low": 0.125, "high": 0.75, "tasks": 6}, "pass_at_k": {"1": 0.5, "4": 0.75}}}}'
    )
    (path / "eval").mkdir()
    (path / "eval" / "eval-2.json").write_text(
        '{"policy_version": "v2", "tasks": 6, "pass_at_1": null, "pass_at_k": {}, "notes": ["few tasks"],'
        ' "power": {"tasks_needed": 900, "difference": 0.03, "smallest": 0.21},'
        ' "stability": {"flipping": ["a", "b"], "repeats": 4}}'
    )
    (path / "eval" / "broken.json").write_text("[")
    with looking_at(path, index=tmp_path / "index") as (client, _):
        text = page(client, "/run/run/")
    for told in ("50% <small>12% to 75%</small>", "@4 75%", "v2", "900 tasks show a difference of 3%", "2 tasks flip"):
        assert told in text
