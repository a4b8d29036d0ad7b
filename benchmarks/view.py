"""How quick the pages of a large run are: first paint, lists, one attempt, and making the index.

Prints one JSON document. Claims: the first page of 10,000 trajectories is there in under a second, with an index and
without; a page of the list, filtered and sorted, one attempt and one step take a small part of a second.

    python benchmarks/view.py [--attempts 10000] [--browser]

The run is made by a seeded script: attempts of eight steps with tokens and log-probs, of 100 tasks in ten rounds. A
server of its own process shows it. *Cold* is with an empty cache: the page comes while the index is made. The floor of
a page is the style sheet, which the same server answers from memory; the floor of the index is reading every line and
parsing its JSON. ``--browser`` also measures the first contentful paint in Chromium.
"""

import argparse
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from urllib.parse import quote

from patchgym.records import (
    Action,
    Message,
    Observation,
    Outcome,
    PolicyRef,
    Reward,
    RunManifest,
    Step,
    StepTokens,
    StopReason,
    Stream,
    Tally,
    Term,
    TestReport,
    Timing,
    Trajectory,
    Usage,
    Verdict,
)
from patchgym.store import RunDirectory
from patchgym.view.opened import OpenedRun

_TASKS, _ROUNDS, _STEPS, _REPEATS = 100, 10, 8, 5
_THEN = datetime(2026, 1, 1, tzinfo=UTC)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=10_000)
    parser.add_argument("--browser", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="patchgym-bench-view-") as scratch:
        run = Path(scratch) / "run"
        make_run(run, asked.attempts)
        size = (run / "trajectories.jsonl").stat().st_size
        figures: dict[str, object] = {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
            "attempts": asked.attempts,
            "megabytes": round(size / 1e6, 1),
            "index": index_figures(run, Path(scratch) / "index"),
        }
        for name in ("cold", "warm"):
            figures[name] = served_figures(run, Path(scratch) / "cache", asked.browser)
    json.dump(figures, sys.stdout, indent=1)
    print()


def make_run(path: Path, attempts: int) -> None:
    """A run of so many attempts. Lines are made from a few real ones, for pydantic would take minutes."""
    manifest = RunManifest(id="bench", command="loop", config={}, versions={}, task_hashes={}, seed=0, created_at=_THEN)
    RunDirectory.open_for_writing(path, manifest).close()
    dice = random.Random(0)
    samples = [_attempt(dice, solved).to_line() for solved in (False, True) for _ in range(8)]
    with (path / "trajectories.jsonl").open("w", encoding="utf-8") as file:
        for number in range(attempts):
            round_number = 1 + number * _ROUNDS // attempts
            solved = dice.random() < 0.05 * round_number
            line = dice.choice(samples[8:] if solved else samples[:8])
            name = f"task-{number % _TASKS:03}"
            line = line.replace("TASK", name).replace("ROUND", f"round-{round_number}").replace('"NUMBER"', str(number))
            file.write(line.replace("NUMBER", str(number)) + "\n")


def _attempt(dice: random.Random, solved: bool) -> Trajectory:
    words = (
        "def",
        "return",
        "value",
        "index",
        "low",
        "high",
        "clamp",
        "for",
        "in",
        "if",
        "not",
        "else",
        "none",
        "self",
    )

    def text(count: int) -> str:
        return " ".join(dice.choice(words) for _ in range(count))

    steps = tuple(
        Step(
            index=index,
            parent=index - 1 if index else None,
            prompt=(Message(role="user", content=text(150)),),
            message=Message(role="assistant", content=text(40)),
            action=Action(tool="run_command", arguments={"command": text(8)}),
            observation=Observation(shown=text(120), ok=True, exit_code=0, stdout=Stream(text=text(120), size=900)),
            tokens=StepTokens(
                prompt_ids=tuple(dice.randrange(50_000) for _ in range(60)),
                sampled_ids=tuple(dice.randrange(50_000) for _ in range(40)),
                logprobs=tuple(-dice.random() for _ in range(40)),
                mask=(1,) * 40,
            ),
            usage=Usage(prompt_tokens=60, sampled_tokens=40),
            started_at=_THEN,
        )
        for index in range(_STEPS)
    )
    report = TestReport(
        verdict=Verdict.RESOLVED if solved else Verdict.UNRESOLVED,
        tests={f"tests/test_it.py::test_{n}": Outcome.PASSED if solved else Outcome.FAILED for n in range(60)},
        fail_to_pass=Tally(passed=3 if solved else 0, total=3),
        pass_to_pass=Tally(passed=57, total=57),
        hidden=Tally(passed=int(solved), total=1),
        seconds=1.0,
        grader_version="bench",
    )
    value = dice.random() * 0.5 + 0.5 * solved
    return Trajectory(
        id="ROUND.TASK.NUMBER",
        phase="ROUND",
        task_id="TASK",
        task_hash=None,
        group_id="ROUND/TASK",
        sample_index=0,
        policy=PolicyRef(spec="local:bench", version="ROUND"),
        sandbox="namespace",
        steps=steps,
        final_state=None,
        final_patch="diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a\n+b\n",
        stop=StopReason.SUBMITTED,
        status="completed",
        report=report,
        reward=Reward(value=value, gate="solved", terms={"outcome": Term(raw=1, weight=1, value=value, why="bench")}),
        reward_trusted=True,
        in_baseline=True,
        timing=Timing(total_seconds=dice.random() * 60),
    )


def index_figures(run: Path, folder: Path) -> dict[str, float]:
    """Seconds to make the index, to parse the JSON of every line, and to read the run as other commands do."""

    def parse() -> None:
        with (run / "trajectories.jsonl").open("rb") as file:
            for line in file:
                json.loads(line)

    floor = _seconds(parse)
    ours = _seconds(lambda: OpenedRun(run, "run", folder).index.catch_up())
    whole = _seconds(lambda: RunDirectory.read(run))
    again = _seconds(lambda: OpenedRun(run, "run", folder).index.catch_up())
    return {
        "made_s": round(ours, 2),
        "floor_parse_json_s": round(floor, 2),
        "ratio_to_floor": round(ours / floor, 2),
        "whole_run_read_s": round(whole, 2),
        "ratio_to_whole_run_read": round(ours / whole, 2),
        "opened_again_s": round(again, 3),
    }


def served_figures(run: Path, cache: Path, browser: bool) -> dict[str, object]:
    """Seconds until a server of its own is ready, until its first page is there, and of other pages (medians)."""
    environment = {**os.environ, "PATCHGYM_CACHE": str(cache)}
    began = time.perf_counter()
    command = [sys.executable, "-m", "patchgym", "view", str(run), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True
    ) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        ready = time.perf_counter() - began
        first = _seconds(lambda: _get(f"{address}run/run/"))
        painting = time.perf_counter()
        painted = _first_paint(f"{address}run/run/") if browser else None
        painting = time.perf_counter() - painting  # the browser's own start is no part of the server's time
        while json.loads(_get(f"{address}run/run/state"))["unread"]:
            time.sleep(0.2)
        whole = time.perf_counter() - began - painting
        name = quote("round-1.task-007.7")
        pages = {
            "style sheet (floor)": "assets/style.css",
            "overview": "run/run/",
            "list, filtered and sorted": "run/run/attempts?verdict=resolved&sort=reward&order=down&page=3",
            "tasks": "run/run/tasks",
            "one attempt": f"run/run/attempt?id={name}",
            "one step": f"run/run/step?id={name}&step=3",
            "one task": "run/run/task?id=task-007",
        }
        times = {title: round(_median(partial(_get, address + page)), 4) for title, page in pages.items()}
        server.terminate()
        server.wait(timeout=30)
    return {
        "server_ready_s": round(ready, 2),
        "first_page_s": round(first, 3),
        "first_contentful_paint_s": painted,
        "all_indexed_after_s": round(whole, 1),
        "pages_s": times,
    }


def _first_paint(address: str) -> float | None:
    """What Chromium says of its first contentful paint."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    if path is None:
        return None
    with sync_playwright() as started:
        page = started.chromium.launch(executable_path=path, args=["--no-sandbox"]).new_page()
        page.goto(address)
        asked = "new Promise(found => new PerformanceObserver(list => found(list.getEntries()[0].startTime))"
        asked += ".observe({type: 'paint', buffered: true}))"
        return round(float(page.evaluate(asked)) / 1000, 3)


def _get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=120) as answer:
        found: bytes = answer.read()
    return found


def _median(work: Callable[[], object]) -> float:
    return median(_seconds(work) for _ in range(_REPEATS))


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
