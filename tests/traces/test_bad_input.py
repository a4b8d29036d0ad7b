"""Logs that are damaged, huge, hostile or no files at all: each is counted, and none ends an import."""

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from patchgym.cli.console import visible
from patchgym.content import ObjectStore
from patchgym.traces.intake import Intake, moment
from tests.traces.formats.logs_for_tests import claude_code, codex, inspect_eval
from tests.traces.imports_for_tests import Call, Turn, imported, one_of, told, write_json, write_lines

TURNS = [Turn("It fails.", "I look.", "Where?", (Call("bash", {"command": "ls"}, "a.py"),))]
LINES = claude_code(TURNS).splitlines()


def broken(path: Path, format_name: str = "auto") -> dict[str, int]:
    """What of a log could not be read."""
    _, (done,) = imported(path, format_name=format_name)
    return done.broken


def log(tmp_path: Path, data: bytes) -> Path:
    """A log of Claude Code."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(data)
    return path


def test_an_empty_file_is_counted(tmp_path: Path) -> None:
    assert broken(log(tmp_path, b"")) == {"empty": 1}


@pytest.mark.parametrize("text", ["null", "[]", "{}", '"x"', "[[]]", "12"])
@pytest.mark.parametrize("name", ["gemini_cli", "mini_swe_agent", "swe_agent", "openhands", "inspect", "codex"])
def test_a_document_that_holds_nothing_is_counted(tmp_path: Path, text: str, name: str) -> None:
    trajectories, (done,) = imported(log(tmp_path, text.encode()), format_name=name)
    assert done.broken or not any(one.steps for one in trajectories)


def test_a_byte_order_mark_crlf_and_a_missing_last_newline_change_nothing(tmp_path: Path) -> None:
    plain = told(one_of(log(tmp_path, b"\n".join(LINES) + b"\n")))
    assert told(one_of(log(tmp_path, b"\xef\xbb\xbf" + b"\r\n\r\n".join(LINES)))) == plain


def test_bytes_that_are_no_utf8_are_shown_as_such_and_counted(tmp_path: Path) -> None:
    path = log(tmp_path, b"\n".join(LINES).replace(b"a.py", b"\xff.py"))
    (trajectory,), (done,) = imported(path)
    assert done.broken == {"not_utf8": 1}
    assert told(trajectory)[-1] == ("did", "bash", {"command": "ls"}, "\ufffd.py")


def test_lines_that_are_no_json_or_no_object_are_counted_and_passed_over(tmp_path: Path) -> None:
    noise = [b"{", b"42", b'"massive error"', b"[1]", b"null", b'{"type": "user", "message": 3}', b"{}"]
    path = log(tmp_path, b"\n".join([LINES[0], *noise, *LINES[1:]]))
    (trajectory,), (done,) = imported(path)
    assert done.broken == {"no_json": 1, "no_object": 4, "message_that_is_no_object": 1, "line_of_no_kind": 1}
    assert told(trajectory) == told(one_of(log(tmp_path, b"\n".join(LINES))))


def test_a_torn_last_line_is_counted(tmp_path: Path) -> None:
    assert broken(log(tmp_path, b"\n".join(LINES)[:-20])) == {"no_json": 1}


def test_a_log_that_begins_with_a_torn_line_is_told_by_the_others(tmp_path: Path) -> None:
    (trajectory,), (done,) = imported(log(tmp_path, LINES[0][:40] + b"\n" + b"\n".join(LINES)))
    assert (done.format, done.broken, len(trajectory.steps)) == ("claude_code", {"no_json": 1}, 1)


def test_nan_and_infinite_numbers_are_none(tmp_path: Path) -> None:
    data = b"\n".join(LINES).replace(b'{"command": "ls"}', b'{"a": NaN, "b": -Infinity, "c": 1e999, "d": 1}')
    action = one_of(log(tmp_path, data)).steps[0].action
    assert action is not None
    assert action.arguments == {"a": None, "b": None, "c": None, "d": 1}


def test_halves_of_characters_are_replaced_and_counted(tmp_path: Path) -> None:
    data = b"\n".join(LINES).replace(b"I look.", b"x\\ud800y \\ud83d\\ude00")
    (trajectory,), (done,) = imported(log(tmp_path, data))
    assert trajectory.steps[0].message.content == "x\ufffdy \U0001f600"
    assert done.broken == {"half_characters": 1}


def test_json_that_is_nested_too_deeply_is_counted(tmp_path: Path) -> None:
    deep = b"[" * 50_000 + b"]" * 50_000
    lines = b"\n".join(LINES)
    assert broken(log(tmp_path, lines + b'\n{"type": "user", "message": ' + deep + b"}")) == {"no_json": 1}
    arguments = b"[" * 150 + b"]" * 150
    assert broken(log(tmp_path, lines.replace(b'{"command": "ls"}', b'{"a": ' + arguments + b"}"))) == {"no_json": 1}


def test_numbers_of_any_size_survive(tmp_path: Path) -> None:
    data = b"\n".join(LINES).replace(b'{"command": "ls"}', b'{"a": ' + b"9" * 400 + b"}")
    action = one_of(log(tmp_path, data)).steps[0].action
    assert action is not None
    assert action.arguments == {"a": int("9" * 400)}


def test_of_two_results_under_one_id_the_second_is_counted(tmp_path: Path) -> None:
    again = LINES[-1].replace(b'"uuid": "line-', b'"uuid": "again-')
    trajectory = one_of(log(tmp_path, b"\n".join([*LINES, again])))
    assert trajectory.origin is not None
    assert trajectory.origin.left_out["results_without_a_call"] == 1


def test_of_two_calls_under_one_id_each_has_its_own_result(tmp_path: Path) -> None:
    turn = Turn("a", "b", "c", (Call("x", {}, "one"), Call("y", {}, "two")))
    data = codex([turn]).replace(b"call-0-1", b"call-0-0")
    shown = [step.observation.shown for step in one_of(log(tmp_path, data)).steps if step.observation]
    assert shown == ["one", "two"]


def test_versions_may_be_mixed_in_one_file(tmp_path: Path) -> None:
    old = [
        {"id": "old-1", "timestamp": "2025-06-01T00:00:00Z", "instructions": None, "git": {"commit_hash": "c" * 40}},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello."}]},
    ]
    path = write_lines(tmp_path / "mixed.jsonl", old)
    path.write_bytes(path.read_bytes() + codex(TURNS))
    trajectory = one_of(path)
    assert told(trajectory)[:2] == [("asked", "Hello."), ("asked", "It fails.")]
    assert trajectory.origin is not None
    assert (trajectory.origin.base_commit, trajectory.origin.left_out) == (
        "c" * 40,
        {"line_state": 1, "later_session_meta": 1},
    )


@pytest.mark.parametrize(
    "value", ["2026-01-02T03:04:05Z", "2026-01-02T05:04:05+02:00", "2026-01-02T03:04:05", 1767323045, 1767323045000]
)
def test_the_same_moment_is_read_in_every_style(value: object) -> None:
    found = moment(value)
    assert found is not None
    assert found.timestamp() == 1767323045


@pytest.mark.parametrize("value", ["", "soon", "NaN", "inf", 1e300, 10**400, True, None, [], {}, "2026-13-40"])
def test_what_is_no_moment_is_none(value: object) -> None:
    assert moment(value) is None


def test_a_line_of_50_mb_is_read(tmp_path: Path) -> None:
    data = b"\n".join(LINES).replace(b"a.py", b"x" * 50_000_000)
    seen = one_of(log(tmp_path, data)).steps[0].observation
    assert seen is not None
    assert len(seen.shown) == 50_000_000


def test_a_pipe_is_refused_and_nobody_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert broken(tmp_path / "pipe.jsonl") == {"unreadable": 1}
    assert broken(tmp_path / "pipe.jsonl", "claude_code") == {"unreadable": 1}


def test_a_device_is_refused() -> None:
    assert broken(Path("/dev/zero"), "codex") == {"unreadable": 1}


def test_a_file_that_may_not_be_read_is_counted(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("SKIPPED LOUDLY: root may read every file")
    path = log(tmp_path, b"{}")
    path.chmod(0)
    assert broken(path) == {"unreadable": 1}


def test_symbolic_links_in_a_folder_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    log(tmp_path / "outside", claude_code(TURNS))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "link.jsonl").symlink_to(tmp_path / "outside" / "log.jsonl")
    (tmp_path / "logs" / "folder").symlink_to(tmp_path / "outside")
    assert imported(tmp_path / "logs") == ([], [])


def test_a_session_does_not_reach_its_sub_agents_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    log(tmp_path / "outside", claude_code(TURNS))
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "subagents").symlink_to(tmp_path / "outside")
    assert len(imported(log(tmp_path, claude_code(TURNS)))[0]) == 1


def test_a_file_that_ends_while_it_is_read_gives_what_it_had(tmp_path: Path) -> None:
    path = log(tmp_path, claude_code(TURNS * 200))
    data = path.read_bytes()
    os.truncate(path, len(data) // 2)
    (trajectory,), (done,) = imported(path)
    assert len(trajectory.steps) > 50
    assert sum(done.broken.values()) <= 1


def test_a_file_that_shrinks_while_it_is_read_ends_there(tmp_path: Path) -> None:
    path = log(tmp_path, b'{"a": 1}\n' * 100_000)
    lines = Intake(ObjectStore(tmp_path / "objects")).lines(path)
    assert next(lines) == (1, {"a": 1})
    os.truncate(path, 100)
    assert len(list(lines)) < 100_000


def test_a_path_may_hold_spaces_and_newlines(tmp_path: Path) -> None:
    folder = tmp_path / "a folder\nof logs"
    folder.mkdir()
    trajectory = one_of(log(folder, claude_code(TURNS)))
    assert trajectory.origin is not None
    assert trajectory.origin.file == "log.jsonl"


def test_a_name_in_a_log_never_becomes_a_path(tmp_path: Path) -> None:
    data = claude_code(TURNS).replace(b"session-1", b"../../etc/passwd")
    assert one_of(log(tmp_path, data)).id == ".._.._etc_passwd"


def test_escape_sequences_are_kept_and_never_reach_a_terminal(tmp_path: Path) -> None:
    data = claude_code(TURNS).replace(b"a.py", b"\\u001b[2Ja\\u001b]0;x\\u0007")
    seen = one_of(log(tmp_path, data)).steps[0].observation
    assert seen is not None
    assert seen.shown == "\x1b[2Ja\x1b]0;x\x07"
    assert visible(seen.shown) == "\\x1b[2Ja\\x1b]0;x\\x07"


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    """A zip."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def test_of_a_zip_bomb_no_more_is_unpacked_than_a_sample_may_hold(tmp_path: Path) -> None:
    bomb = b'{"id": "' + b" " * (160 << 20)
    path = zipped(tmp_path / "bomb.eval", {"header.json": b"{}", "samples/1_epoch_1.json": bomb})
    assert path.stat().st_size < 1 << 20
    assert broken(path) == {"zip_member_too_large": 1, "no_samples": 1}


def test_samples_that_a_zip_only_lists_are_counted(tmp_path: Path) -> None:
    listed = [{"id": 1, "epoch": 1}, {"id": 2, "epoch": 1}, {"id": "three", "epoch": 1}]
    with zipfile.ZipFile(io.BytesIO(inspect_eval(TURNS))) as source:
        members = {name: source.read(name) for name in source.namelist()}
    path = zipped(tmp_path / "log.eval", {**members, "summaries.json": json.dumps(listed).encode()})
    assert broken(path) == {"missing_sample": 2}


def test_a_zip_that_is_cut_or_no_log_is_counted(tmp_path: Path) -> None:
    whole = inspect_eval(TURNS)
    (tmp_path / "cut.eval").write_bytes(whole[: len(whole) // 2])
    assert broken(tmp_path / "cut.eval") == {"broken_zip": 1}
    assert broken(zipped(tmp_path / "other.eval", {"a.txt": b"x"})) == {"no_samples": 1}


def test_members_of_a_zip_that_name_places_outside_are_no_samples(tmp_path: Path) -> None:
    members = {"header.json": b"{}", "samples/../../x.json": b"{}", "/etc/passwd": b"x"}
    assert broken(zipped(tmp_path / "log.eval", members)) == {"no_samples": 1}


def test_tools_that_nobody_knows_are_kept(tmp_path: Path) -> None:
    turn = Turn("a", "b", "c", (Call("\u2603 <b>rm -rf</b>", {}, "x"),))
    action = one_of(log(tmp_path, claude_code([turn]))).steps[0].action
    assert action is not None
    assert action.tool == "\u2603 <b>rm -rf</b>"


def test_a_kind_of_line_may_be_anything(tmp_path: Path) -> None:
    kinds: list[Any] = ["", "x" * 500, "a\nb", [1], {"a": 1}, 5]
    lines = [{"type": kind, "uuid": str(at), "sessionId": "session-1"} for at, kind in enumerate(kinds)]
    path = write_lines(tmp_path / "log.jsonl", lines)
    path.write_bytes(claude_code(TURNS) + path.read_bytes())
    (trajectory,), (done,) = imported(path)
    assert trajectory.origin is not None
    assert sum(trajectory.origin.left_out.values()) + sum(done.broken.values()) == len(kinds)


_PEAK = r"""
import re, sys
from pathlib import Path
from patchgym.content import ObjectStore
from patchgym.traces.formats import READERS
from patchgym.traces.intake import Intake
intake = Intake(ObjectStore(Path(sys.argv[3])))
total = 0
for trajectory in READERS[sys.argv[1]].read(Path(sys.argv[2]), intake):
    total += len(trajectory.to_line())
peak = int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024  # not the parent's
print(peak, total, sum(intake.broken.values()))
"""


def peak_of(path: Path, format_name: str, tmp_path: Path) -> tuple[float, int, int]:
    """The peak of a process's memory in MiB while it reads a log, how much came of it, and how much was counted."""
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, format_name, str(path), str(tmp_path / "objects")],
        capture_output=True,
        text=True,
        check=True,
    )
    peak, total, damaged = done.stdout.split()
    return float(peak), int(total), int(damaged)


@pytest.mark.slow
def test_200_mb_of_rows_are_read_one_at_a_time(tmp_path: Path) -> None:
    event = {"source": "agent", "action": "run", "args": {"command": "x" * 100_000}}
    row = json.dumps({"instance_id": "a", "git_patch": "", "history": [event] * 20}) + "\n"
    with (tmp_path / "rows.jsonl").open("w") as file:
        for _ in range(100):
            file.write(row)
    assert (tmp_path / "rows.jsonl").stat().st_size > 200e6
    peak, total, damaged = peak_of(tmp_path / "rows.jsonl", "openhands", tmp_path)
    assert peak < 300
    assert total > 200e6
    assert damaged == 0


@pytest.mark.slow
@pytest.mark.parametrize(("name", "write"), [("claude_code", claude_code), ("codex", codex)])
def test_a_session_of_200_mb_is_cut_at_a_bound_and_what_is_beyond_it_is_counted(
    tmp_path: Path, name: str, write: Callable[[list[Turn]], bytes]
) -> None:
    turns = write([Turn("a", "b", "c", (Call("bash", {}, "x" * 100_000),))])
    with (tmp_path / "log.jsonl").open("wb") as file:
        for at in range(2000):
            file.write(turns.replace(b"line-", b"line-%d-" % at).replace(b"-0", b"-%d" % at))
    assert (tmp_path / "log.jsonl").stat().st_size > 200e6
    peak, total, damaged = peak_of(tmp_path / "log.jsonl", name, tmp_path)
    assert peak < 300
    assert total > 30e6
    assert damaged > 1000


def test_a_folder_is_read_whole_and_a_file_in_it_only_once(tmp_path: Path) -> None:
    write_json(tmp_path / "a" / "b" / "c.json", {"sessionId": "s", "projectHash": "p", "messages": []})
    (tmp_path / "a" / "log.jsonl").write_bytes(claude_code(TURNS))
    trajectories, done = imported(tmp_path, tmp_path / "a" / "log.jsonl")
    assert [one.format for one in done] == ["claude_code", "gemini_cli"]
    assert len(trajectories) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["claude_code", "openhands", "gemini_cli"])
def test_many_sessions_or_loose_events_in_one_file_stay_within_the_bound(tmp_path: Path, name: str) -> None:
    text = "x" * 100_000
    lines = {
        "claude_code": {"type": "user", "uuid": "N", "sessionId": "N", "message": {"content": text}},
        "openhands": {"id": 1, "timestamp": "N", "source": "user", "action": "message", "args": {"content": text}},
        "gemini_cli": {"id": "N", "type": "user", "content": text, "sessionId": "s", "projectHash": "p"},
    }
    line = json.dumps(lines[name]) + "\n"
    with (tmp_path / "log.jsonl").open("w") as file:
        for number in range(2000):
            file.write(line.replace('"N"', f'"{number}"'))
    peak, _, damaged = peak_of(tmp_path / "log.jsonl", name, tmp_path)
    assert peak < 300
    assert damaged > 1000
