"""The pages in a real browser: no error, nothing hostile acts, usable by keyboard, accessible in dark and in light."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from patchgym.store import RunDirectory
from tests.records_for_tests import make_manifest, make_step
from tests.view.making import HOSTILE, graded, hostile_run, loop_run, small_tree, states_run, write_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

playwright = pytest.importorskip("playwright.sync_api", reason="LOUD SKIP: no playwright here: pip install playwright")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="LOUD SKIP: no axe here")

_ID = quote(HOSTILE.replace("\x00", ""), safe="")
_PAGES = {
    "runs": "",
    "overview": "run/loop/",
    "attempts": "run/loop/attempts?sort=reward&order=down",
    "attempt": "run/states/attempt?id=round-1.demo-1.0",
    "step": "run/states/step?id=round-1.demo-1.0&step=1&since=1",
    "files": "run/states/files?id=round-1.demo-1.0&path=a.py",
    "text": "run/states/text?id=round-1.demo-1.0&step=1&of=stdout",
    "tasks": "run/loop/tasks",
    "task": "run/states/task?id=demo-1&whole=1",
    "tree": "run/searched/tree?id=tree-1&node=1",
    "checklist": "run/loop/checklist",
    "data": "run/loop/data",
    "spotcheck": "run/loop/spotcheck",
    "hostile attempt": f"run/hostile/attempt?id={_ID}",
    "hostile step": f"run/hostile/step?id={_ID}&step=0",
}


def _chromium() -> str:
    """The browser's path. CI installs it; elsewhere its absence skips the tests."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None and os.environ.get("CI") and shutil.which("apt-get"):
        for command in (["update", "-q"], ["install", "-qy", "--no-install-recommends", "chromium"]):
            subprocess.run(["apt-get", *command], check=True, capture_output=True, timeout=600)
        found = shutil.which("chromium")
    if found is None:
        pytest.skip("LOUD SKIP: no Chromium here, so no page is looked at in a browser: apt-get install chromium")
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browsed")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[str]:
    """The address of a server that shows a run of each kind."""
    loop_run(folder / "runs" / "loop")
    states_run(folder / "runs" / "states")
    hostile_run(folder / "runs" / "hostile")
    write_run(folder / "runs" / "searched", [], trees=[small_tree()])
    write_run(folder / "runs" / "growing", [graded(0)])
    command = [sys.executable, "-m", "patchgym", "view", str(folder / "runs"), "--port", "0"]
    environment = {**os.environ, "PATCHGYM_CACHE": str(folder / "cache")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()
        process.wait(timeout=60)


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    path = _chromium()
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(params=["light", "dark"])
def tab(request: pytest.FixtureRequest, browser: "Browser") -> "Iterator[Page]":
    """A page in one of the two schemes; what it says on its console and asks of other hosts fails the test."""
    context = browser.new_context(color_scheme=request.param, viewport={"width": 1280, "height": 800})
    page = context.new_page()
    heard: list[str] = []
    page.on("console", lambda message: heard.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("request", lambda asked: None if "//127.0.0.1:" in asked.url else heard.append(asked.url))
    yield page
    context.close()
    assert heard == []


def test_every_page_is_accessible_and_hostile_text_does_nothing(tab: "Page", served: str) -> None:
    found = {}
    for name, address in _PAGES.items():
        answer = tab.goto(served + address)
        assert answer is not None
        assert answer.status == 200, name
        violations = axe.Axe().run(tab).response["violations"]
        serious = [
            (one["id"], one["nodes"][0]["html"][:200]) for one in violations if one["impact"] in ("serious", "critical")
        ]
        if serious:
            found[name] = serious
        assert tab.evaluate("window.hacked") is None, name
        assert tab.locator("main img, main script, main iframe").count() == 0, name
    assert found == {}, json.dumps(found, indent=1)


def test_pages_can_be_gone_about_by_keyboard(tab: "Page", served: str) -> None:
    tab.goto(served + "run/loop/")
    tab.keyboard.press("a")
    tab.wait_for_url("**/run/loop/attempts")
    tab.keyboard.press("/")
    tab.keyboard.type("round-2")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**q=round-2**")
    assert tab.get_by_text("4 attempts").is_visible()
    tab.keyboard.press("j")
    tab.keyboard.press("j")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/attempt?**")
    assert "round-2.demo-1.1" in tab.locator("h1").inner_text()
    tab.keyboard.press("]")
    tab.wait_for_url("**id=round-2.demo-1.2**")


def test_the_spot_check_is_answered_by_keyboard(tab: "Page", served: str, folder: Path) -> None:
    file = folder / "runs" / "loop" / "spotcheck-0.jsonl"
    before = file.read_text().count("\n") if file.is_file() else 0
    tab.goto(served + "run/loop/spotcheck")
    assert "resolved" not in tab.locator("main").inner_text()
    for key in ("y", "n", "u"):
        at = tab.locator("main p.quiet").first.inner_text()
        tab.keyboard.press(key)
        tab.wait_for_function("told => document.querySelector('main p.quiet').innerText !== told", arg=at)
        tab.wait_for_load_state()  # a key pressed before the page's script has run is lost
    labels = [json.loads(line)["label"] for line in file.read_text().splitlines()[before:]]
    assert labels == ["yes", "no", "unsure"]


def test_a_page_follows_a_run_in_progress(tab: "Page", served: str, folder: Path) -> None:
    path = folder / "runs" / "growing"
    run = RunDirectory.open_for_writing(path, make_manifest())
    number = len(run.ids)
    tab.goto(served + "run/growing/")
    tab.get_by_text(f"{number} of 2 attempts").wait_for(timeout=20_000)
    run.journal("in-the-making").append(make_step(0))
    run.append(graded(number))
    tab.get_by_text(f"{number + 1} of 2 attempts").wait_for(timeout=20_000)
    (path / "journal" / "in-the-making.jsonl").unlink()
    run.close()
    tab.get_by_text("done").first.wait_for(timeout=20_000)


def test_pages_are_read_without_script(browser: "Browser", served: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(served + "run/loop/attempts?verdict=resolved")
    page.get_by_role("link", name="round-3.demo-1.0").click()
    assert page.get_by_role("heading", name="Steps").is_visible()
    assert page.get_by_text("tool: list_files").count() == 0
    context.close()


def test_the_static_page_is_accessible_and_loads_nothing(tab: "Page", folder: Path, served: str) -> None:
    out = folder / "page.html"
    command = [sys.executable, "-m", "patchgym", "view", str(folder / "runs" / "hostile"), "--static", str(out)]
    subprocess.run(command, check=True, env={**os.environ, "PATCHGYM_CACHE": str(folder / "cache")}, timeout=300)
    asked: list[str] = []
    page = tab.context.new_page()
    page.on("request", lambda request: asked.append(request.url))
    heard: list[str] = []
    page.on("console", lambda message: heard.append(message.text))
    page.goto(out.as_uri())
    page.locator("details").last.evaluate("one => one.open = true")
    violations = axe.Axe().run(page).response["violations"]
    assert [one["id"] for one in violations if one["impact"] in ("serious", "critical")] == []
    assert page.evaluate("window.hacked") is None
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert heard == []
    page.close()
