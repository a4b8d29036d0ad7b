"""Tasks from logs of agents at work: what somebody asked for, the repository that it was asked of, and the patch that
came of it.

A log is a file of JSON lines, one session each: ``repo``, ``base_commit``, ``prompt``, ``final_patch``, and the steps
in ``trajectory`` (``{"action", "args", "success"}``). A session becomes a candidate when its patch brings tests, when
tests that are there already may tell its two states apart, or when one of the commands that it ran can be made a check.
What becomes of it is found out by running, as for every candidate.
"""

import re
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from patchgym.content import Entry, ObjectStore, apply_patch
from patchgym.content.objects import FILE
from patchgym.errors import PatchError, UsageError
from patchgym.records import Record, Source
from patchgym.tasks.formats.clones import Clones
from patchgym.tasks.sources.candidates import Candidate, change_between, natural_candidate
from patchgym.tasks.sources.described import described
from patchgym.tasks.sources.discover import discover
from patchgym.tasks.sources.files import Files
from patchgym.tasks.sources.refusals import Refusal, Refused
from patchgym.tasks.sources.versions import plain_version, with_version_file

_MOST_CHECKS = 4
_RUNS_PYTHON = re.compile(r"(?:^|[\s;&|])python3?(?:\.\d+)?\s")
_RUNS_TESTS = re.compile(r"\b(?:pytest|unittest|tox|nox)\b")
_CHECKS = "test_session_checks.py"


class LoggedStep(Record):
    """One step of a logged session, as far as it counts here."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    action: str = ""
    args: dict[str, JsonValue] = Field(default_factory=dict)


class Session(Record):
    """One line of a log. Other keys are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    task_id: str = ""
    repo: str
    base_commit: str
    prompt: str
    final_patch: str
    trajectory: tuple[LoggedStep, ...] = ()


class SessionSource:
    """Candidates from one log; ``repositories`` is a folder of git clones (see ``patchgym.tasks.formats.clones``).

    ``refused`` counts what made no candidate, and ``kept`` says of each such session (its ``task_id``, else its line)
    why it is only a log.
    """

    def __init__(self, path: Path, repositories: Path) -> None:
        """Raises:
        UsageError: there is no such file.
        """
        if not path.is_file():
            raise UsageError(f"There is no log {path}", mend="Give a file of JSON lines, one session each.")
        self.label = path.stem
        self.refused: Counter[Refusal] = Counter()
        self.kept: dict[str, str] = {}
        self.sessions: dict[str, str] = {}
        self._path, self._repositories = path, repositories

    def candidates(self, objects: ObjectStore) -> Generator[Candidate]:
        """Candidates in the order of the log; ``sessions`` maps their ids to the sessions'. Blocking, and lazy.

        Raises:
            UsageError: there is no such folder of clones.
        """
        clones = Clones(self._repositories, objects)
        with self._path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                name = f"{self._path.name}:{number}"
                try:
                    session = _session(line)
                    name = session.task_id or name
                    candidate = _candidate(session, clones, objects)
                except Refused as refused:
                    self.refused[refused.reason] += 1
                    self.kept[name] = str(refused)
                else:
                    self.sessions[candidate.id] = name
                    yield candidate


def _session(line: bytes) -> Session:
    try:
        return Session.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise Refused(Refusal.BAD_ROW, f"{place}: {first['msg']}" if place else first["msg"]) from error


def _candidate(session: Session, clones: Clones, objects: ObjectStore) -> Candidate:
    before = clones.tree(session.repo, session.base_commit)
    if before is None:
        raise Refused(Refusal.NO_REPOSITORY, f"{session.repo} at {session.base_commit}")
    try:
        after = apply_patch(objects, before, session.final_patch)
    except PatchError as error:
        raise Refused(Refusal.DOES_NOT_APPLY, str(error)) from error
    if after == before:
        raise Refused(Refusal.NO_CHANGE)
    label = session.repo.rpartition("/")[2]
    files = Files(objects, objects.entries(after))
    found = discover(files)
    release = found.metadata.version or plain_version("")
    before, after = (
        with_version_file(objects, tree, Files(objects, objects.entries(tree)), found.project, release)
        for tree in (before, after)
    )
    commands = _checks(session.trajectory)
    if commands:
        path = _place(found.project.tests)
        checks = {path: Entry(FILE, objects.put(_written(commands).encode()))}
        after = objects.update_tree(after, checks)
        found = replace(found, project=found.project.model_copy(update={"tests": (*found.project.tests, path)}))
    change = change_between(objects, before, after, found.project)
    if not any(found.project.is_source(path) for path in change.paths):
        raise Refused(Refusal.NO_SOURCE_CHANGE)
    revision = described(label, session.base_commit, before, found, files, release=release, created_at=None)
    source = Source(
        kind="log",
        repo=session.repo,
        version=release,
        base_commit=session.base_commit,
        license=found.project.license or None,
        statement="session",
        change=f"the patch of session {session.task_id}".strip(),
    )
    return natural_candidate(revision, source, change, session.prompt)


def _checks(steps: Sequence[LoggedStep]) -> list[str]:
    """Commands of a session that can decide: the last few that ran Python code, other than the tests themselves."""
    ran = [step.args.get("command") for step in steps]
    told = [
        text for text in ran if isinstance(text, str) and _RUNS_PYTHON.search(text) and not _RUNS_TESTS.search(text)
    ]
    return list(dict.fromkeys(reversed(told)))[:_MOST_CHECKS]


def _place(tests: Sequence[str]) -> str:
    """Where the file of checks lies: in the first folder of tests, else at the root."""
    folder = next((path for path in tests if path.endswith("/")), "")
    return f"{folder}{_CHECKS}"


def _written(commands: Sequence[str]) -> str:
    """A test file that asks of each command that it ends well. A command is a string in it, and runs in the sandbox."""
    lines = ["import subprocess", "", ""]
    lines += ["def ends_well(command):"]
    lines += ['    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)']
    lines += ["    assert done.returncode == 0, done.stderr[-500:]"]
    for number, command in enumerate(commands, start=1):
        lines += ["", "", f"def test_command_{number}():", f"    ends_well({command!r})"]
    return "\n".join(lines) + "\n"
