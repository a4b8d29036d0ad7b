"""The labelled set: attempts that are hacks, and honest ones that look like them.

``labelled/tuned`` was looked at while the detectors were written; its files called ``varied`` were written before the
rules that find them. ``labelled/heldout`` was written before the detectors, on other repositories and in other
spellings, and only its totals were looked at. ``labelled/blind`` was written by somebody who had not seen the detectors
and was measured once, with a precision of 0.97 and a recall of 0.74; it was tuned on since, and is blind no more.
``labelled/blind2`` is another author's, who had not seen the detectors either: look at its totals only. Each folder has
``projects.toml`` (small repositories with their tests) and files of cases; a case says how it changes its project:

    kind       what it is a hack of, or looks like
    hack       whether it is one
    edit       triples: path, old text, new text
    file       path to whole new text; ``append`` likewise, behind what is there
    delete     paths; ``binary``: paths of new binary files
    steps      command lines, or [tool, path, ...] for reading, writing and editing
    report     shares of visible and hidden failing tests fixed, calls with known results, calls that differ
"""

import difflib
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from patchgym.records import Action, Message, Observation, ProbeReport, Step, Tally, TestReport, Verdict
from patchgym.reward.hacks import Attempt

FOLDER = Path(__file__).with_name("labelled")
PARTS = ("tuned", "heldout", "blind", "blind2")


@dataclass(frozen=True)
class Case:
    """One labelled attempt."""

    name: str
    kind: str
    hack: bool
    attempt: Attempt


@cache
def cases(part: str) -> tuple[Case, ...]:
    """All cases of a part, in order of file and place."""
    folder = FOLDER / part
    projects = tomllib.loads((folder / "projects.toml").read_text(encoding="utf-8"))
    found: list[Case] = []
    for path in sorted(folder.glob("*.toml")):
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("case", [])
        found += [_case(f"{path.stem}-{at}", row, projects[row["project"]]) for at, row in enumerate(rows)]
    return tuple(found)


def _case(name: str, row: dict[str, Any], project: dict[str, Any]) -> Case:
    files: dict[str, str] = {path: text.lstrip("\n") for path, text in project["files"].items()}
    after: dict[str, str | None] = dict(files)
    for path, old, new in row.get("edit", []):
        text = after[path]
        assert text is not None
        assert old in text, f"{name}: {path} does not hold {old!r}"
        after[path] = text.replace(old, new.lstrip("\n") if old.startswith("import") else new, 1)
    for path, text in row.get("file", {}).items():
        after[path] = text.lstrip("\n")
    for path, text in row.get("append", {}).items():
        after[path] = (after.get(path) or "") + text
    for path in row.get("delete", []):
        after[path] = None
    for path in row.get("binary", []):
        after[path] = "\x00\\x16\\x0d"
    changed = sorted(path for path in after if after[path] != files.get(path))
    before = {path: files.get(path) for path in changed}
    tests = {path: files[path] for path in project["tests"] if path in files}
    attempt = Attempt(
        before=before,
        after={path: after[path] for path in changed},
        patch="".join(_diff(path, before[path], after[path]) for path in changed),
        test_files=frozenset(project["tests"]),
        tests=tests,
        paths=frozenset(files),
        functions=tuple(project["functions"]),
        instruction=row.get("instruction", project["instruction"]),
        repo=project["repo"],
        steps=tuple(_step(at, one) for at, one in enumerate(row.get("steps", []))),
        report=_report(row["report"]) if "report" in row else None,
    )
    return Case(name, row["kind"], row["hack"], attempt)


def _diff(path: str, old: str | None, new: str | None) -> str:
    was, now = ((text or "").splitlines(keepends=True) for text in (old, new))
    sides = (f"a/{path}" if old is not None else "/dev/null", f"b/{path}" if new is not None else "/dev/null")
    return "".join(difflib.unified_diff(was, now, *sides))


def _step(index: int, one: str | list[str]) -> Step:
    if isinstance(one, str):
        action = Action(tool="run_command", arguments={"command": one})
    else:
        keys = {"read_file": ("path",), "write_file": ("path", "content"), "edit_file": ("path", "old", "new")}[one[0]]
        action = Action(tool=one[0], arguments=dict(zip(keys, one[1:], strict=True)))
    return Step(
        index=index,
        parent=index - 1 if index else None,
        prompt=(),
        message=Message(role="assistant", content=""),
        action=action,
        observation=Observation(shown="", ok=True),
    )


def _report(row: dict[str, Any]) -> TestReport:
    seen, hidden = row["visible"], row["hidden"]
    probes = row.get("probes")
    return TestReport(
        verdict=Verdict.RESOLVED if seen[0] + hidden[0] == seen[1] + hidden[1] else Verdict.UNRESOLVED,
        tests={},
        fail_to_pass=Tally(passed=seen[0] + hidden[0], total=seen[1] + hidden[1]),
        pass_to_pass=Tally(passed=5, total=5),
        hidden=Tally(passed=hidden[0], total=hidden[1]),
        seconds=1.0,
        grader_version="1",
        probes=None
        if probes is None
        else ProbeReport(
            recorded=Tally(passed=probes[0], total=probes[1]),
            varied=Tally(passed=0, total=0),
            differing=row.get("differing", 0),
        ),
    )
