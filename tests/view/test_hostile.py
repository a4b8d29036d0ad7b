"""Whatever agents, tasks and logs write: pages hold it as text, and come in time."""

import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from patchgym.content import ObjectStore
from patchgym.records import Message, Observation, Stream
from patchgym.view.site import Site
from patchgym.view.static import static_page
from tests.records_for_tests import make_report, make_step, make_trajectory
from tests.view.making import HOSTILE, hostile_run, looking_at, page, write_run

_OURS = {"img": 0, "iframe": 0, "object": 0, "embed": 0, "base": 0}
_ID = quote(HOSTILE.replace("\x00", ""), safe="")
_ADDRESSES = (
    *("", "attempts", "tasks", "trees", "checklist", "data"),
    f"attempt?id={_ID}",
    f"step?id={_ID}&step=0",
    f"step?id={_ID}&step=1",
    f"text?id={_ID}&step=0&of=stdout",
    f"task?id={quote(HOSTILE, safe='')}&whole=1",
    f"attempts?q={quote(HOSTILE[:60], safe='')}",
    f"attempt?id={quote('<script>alert(1)</script>')}",
)


class _Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[str | None] = []
        self.bad: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        if tag == "script":
            self.scripts.append(names.get("src"))
        if tag in _OURS or any(name.startswith("on") or name == "style" for name in names):
            self.bad.append(tag)
        if any(
            str(value).strip().lower().startswith(("javascript:", "http:", "https:", "//")) for value in names.values()
        ):
            self.bad.append(str(attrs))


def seen(text: str) -> _Seen:
    found = _Seen()
    found.feed(text)
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_run(tmp_path_factory.mktemp("hostile") / "run")


@pytest.mark.parametrize("address", _ADDRESSES)
def test_no_page_has_an_element_that_is_not_ours(run: Path, tmp_path: Path, address: str) -> None:
    with looking_at(run, index=tmp_path) as (client, _):
        answer = client.get(f"/a-token-of-the-tests/run/run/{address}")
    found = seen(answer.text)
    assert answer.status_code in (200, 404)
    assert found.bad == []
    assert [source for source in found.scripts if source is None or not source.endswith("/assets/script.js")] == []
    assert not set(answer.text) & {"\u202e", "\u2066", "\u200b", "\x1b", "\x00", "\ufeff", "\x07"}
    assert "49" not in answer.text.split("7 * 7")[0][-5:]


def test_the_static_page_has_no_element_that_is_not_ours(run: Path, tmp_path: Path) -> None:
    with looking_at(run, index=tmp_path) as (_, site):
        text = static_page(Site(site.runs), site.runs["run"], 10)
    found = seen(text)
    assert (found.bad, found.scripts) == ([], [])
    assert "window.hacked" in text
    assert "\u202e" not in text


def _timed(client: TestClient, address: str) -> tuple[str, float]:
    began = time.monotonic()
    text = page(client, address)
    return text, time.monotonic() - began


def test_an_attempt_of_5000_steps_is_shown_page_by_page(tmp_path: Path) -> None:
    steps = [make_step(n) for n in range(5000)]
    path = write_run(tmp_path / "run", [make_trajectory(0, steps=steps, report=make_report(), reward=0.0)])
    with looking_at(path, index=tmp_path / "index") as (client, site):
        text, _ = _timed(client, "/run/run/attempt?id=round-1.demo-1.0&steps=50")
        assert "Page 50 of 50" in text
        assert "step=4999" in text
        assert "step=100&" not in text
        assert len(text) < 300_000
        assert "4999 of 5000" in page(client, "/run/run/step?id=round-1.demo-1.0&step=4998")
        assert len(static_page(Site(site.runs), site.runs["run"], 1)) < 500_000


def test_a_stream_of_20_megabytes_is_cut_with_a_way_to_the_rest(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", [])
    blob = ObjectStore(path / "objects").put(b"\x1b[31m<b>\xff\xfe" * 2_000_000)
    loud = Observation(
        shown="x" * 3_000_000,
        stdout=Stream(text="<b>", size=20_000_000, blob=blob),
        stderr=Stream(text="e" * 9_000_000, size=9_000_000),
    )
    step = make_step(0).model_copy(
        update={"observation": loud, "message": Message(role="assistant", content="m" * 2_000_000)}
    )
    write_run(path, [make_trajectory(0, steps=[step], report=make_report(), reward=0.0)])
    with looking_at(path, index=tmp_path / "index") as (client, _):
        text = page(client, "/run/run/step?id=round-1.demo-1.0&step=0")
        assert len(text) < 200_000
        assert "all of stdout" in text
        last = page(client, "/run/run/text?id=round-1.demo-1.0&step=0&of=stdout&page=306")
        assert "Page 306 of 306" in last
        assert "\\x1b[31m" in last.replace('<span class="esc">', "").replace("</span>", "")
        assert "&lt;b&gt;" in last
