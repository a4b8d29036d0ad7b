"""An imported run is looked at as a run that was made here."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from patchgym.cli.show import command as show
from patchgym.cli.traces.import_ import command as import_
from tests.traces.formats.logs_for_tests import claude_code
from tests.traces.imports_for_tests import Call, Turn

TURNS = [
    Turn("It fails.", "I look.", "Where?", (Call("bash", {"command": "ls"}, "a\x1b[2Jb"), Call("read", {}, "x"))),
    Turn("Go on.", "All done.", "So.", ()),
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that a session was imported to."""
    (tmp_path / "log.jsonl").write_bytes(claude_code(TURNS) + b"{\n")
    done = CliRunner().invoke(import_, ["auto", str(tmp_path / "log.jsonl"), "--out", str(tmp_path / "run")])
    assert done.exit_code == 1
    assert "no json" in done.output
    assert f"patchgym show {tmp_path / 'run'}" in done.output.replace("\n", "")
    return tmp_path / "run"


def shown(*arguments: object) -> str:
    """What the command prints, its white space as one."""
    done = CliRunner().invoke(show, [str(one) for one in arguments])
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.output
    return " ".join(done.output.split())


def test_the_list_names_the_model(run: Path) -> None:
    assert "session-1 │ 3 │ m" in shown(run)


def test_the_steps_say_what_was_done_said_and_seen(run: Path) -> None:
    text = shown(run, "session-1")
    assert "bash command=ls" in text
    assert "a\\x1b[2Jb" in text
    assert "says: All done." in text


def test_a_branch_says_what_it_follows(tmp_path: Path) -> None:
    lines = claude_code(TURNS).splitlines()
    last = json.loads(lines[-1])
    again = {**last, "uuid": "again", "parentUuid": "line-0", "message": {**last["message"], "id": "other"}}
    (tmp_path / "log.jsonl").write_bytes(b"\n".join([*lines, json.dumps(again).encode()]))
    CliRunner().invoke(import_, ["auto", str(tmp_path / "log.jsonl"), "--out", str(tmp_path / "run")])
    assert "3 after the start" in shown(tmp_path / "run", "session-1")


def test_a_step_says_what_was_given_thought_and_asked(run: Path) -> None:
    text = shown(run, "session-1", "--step", "0")
    assert "[user] It fails." in text
    assert "[assistant, thinking] Where?" in text
    assert "[assistant calls read]" in text


def test_a_step_of_a_parallel_call_says_so(run: Path) -> None:
    text = shown(run, "session-1", "--step", "1")
    assert "[asked for in the message of the step before]" in text
    assert "[read]" in text
