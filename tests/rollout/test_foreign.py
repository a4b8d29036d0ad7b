"""Actions of other agents, done again in our sandbox."""

import asyncio
from pathlib import Path

import pytest
from pydantic import JsonValue

from patchgym.content import Entry, ObjectStore
from patchgym.content.objects import FILE
from patchgym.records import Action, Message, Observation, Stream, Trajectory
from patchgym.rollout.foreign import Edit, ForeignReplayer, Shell, Write, deed_of, inside
from patchgym.rollout.replay import Replayed
from patchgym.traces.draft import Draft
from tests.workshop import sandboxes

Told = tuple[str, dict[str, JsonValue], Observation]


def again(folder: Path, *told: Told) -> tuple[Replayed, Trajectory, ObjectStore]:
    objects = ObjectStore(folder / "objects")
    start = objects.write_tree({"src/a.py": Entry(FILE, objects.put(b"x = 1\ny = 1\n"))})
    draft = Draft(id="log", format="test", file="log.jsonl")
    for tool, arguments, seen in told:
        draft.answered(Message(role="assistant", content=""), [Action(tool=tool, arguments=arguments)])
        draft.observed(seen)
    with sandboxes(objects, folder) as factory:
        replayed, whole = asyncio.run(ForeignReplayer(objects, factory).replay(draft.finished(), start))
    return replayed, whole, objects


def test_commands_and_edits_bring_states_and_the_final_patch_to_light(tmp_path: Path) -> None:
    edit: dict[str, JsonValue] = {"file_path": "/home/me/repo/src/a.py", "old_string": "x = 1", "new_string": "x = 2"}
    replayed, whole, objects = again(
        tmp_path,
        ("Bash", {"command": "cat src/a.py"}, Observation(shown="x = 1\ny = 1")),
        ("Edit", edit, Observation(shown="The file has been updated.", ok=True)),
        (
            "Bash",
            {"command": "cat src/a.py; exit 3"},
            Observation(shown="", exit_code=3, stdout=Stream(text="x = 2\ny = 1")),
        ),
        ("Read", {"file_path": "src/a.py"}, Observation(shown="1 x = 2")),
    )
    assert (replayed.exact, replayed.diverged, replayed.skipped) == (3, 0, 1)
    assert whole.final_patch is not None
    assert "+x = 2" in whole.final_patch
    assert objects.get(objects.entries(str(whole.final_state))["src/a.py"].id) == b"x = 2\ny = 1\n"
    assert [step.changed_paths for step in whole.steps] == [(), ("src/a.py",), (), ()]


def test_what_comes_out_otherwise_is_told(tmp_path: Path) -> None:
    replayed, _, _ = again(
        tmp_path,
        ("bash", {"command": "false"}, Observation(shown="", exit_code=0)),
        ("shell", {"command": ["bash", "-lc", "echo one"]}, Observation(shown="two")),
        (
            "str_replace_editor",
            {"command": "str_replace", "path": "/r/src/a.py", "old_str": "= 1", "new_str": "= 3"},
            Observation(shown="ok", ok=True),
        ),
    )
    assert [divergence.what for divergence in replayed.divergences] == [("exit_code",), ("output",), ("ok",)]


def test_output_in_a_log_s_own_layout_is_the_same(tmp_path: Path) -> None:
    shown = "<returncode>0</returncode>\n<output>\ndone in 3.2s\n</output>"
    replayed, _, _ = again(tmp_path, ("bash", {"command": "echo done in 0.1s"}, Observation(shown=shown)))
    assert (replayed.normalised, replayed.diverged) == (1, 0)


@pytest.mark.parametrize(
    ("tool", "arguments", "deed"),
    [
        ("Bash", {"command": "ls"}, Shell("ls")),
        ("exec_command", {"cmd": "ls"}, Shell("ls")),
        ("shell", {"command": ["ls", "a b"]}, Shell("ls 'a b'")),
        ("functions.shell", {"command": ["bash", "-c", "ls | wc"]}, Shell("ls | wc")),
        ("Write", {"file_path": "a", "content": "x"}, Write("a", "x")),
        ("str_replace_editor", {"command": "create", "path": "a", "file_text": "x"}, Write("a", "x")),
        ("str_replace_editor", {"command": "view", "path": "a"}, None),
        ("replace", {"file_path": "a", "old_string": "x", "new_string": ""}, Edit("a", (("x", ""),))),
        (
            "Edit",
            {"file_path": "a", "old_string": "x", "new_string": "y", "replace_all": True},
            Edit("a", (("x", "y"),), True),
        ),
        ("MultiEdit", {"file_path": "a", "edits": [{"old_string": "x", "new_string": "y"}]}, Edit("a", (("x", "y"),))),
        ("MultiEdit", {"file_path": "a", "edits": [{"old_string": "x"}]}, None),
        ("WebFetch", {"url": "https://example.com"}, None),
        ("Bash", {"command": 3}, None),
        ("Edit", {}, None),
    ],
)
def test_an_action_is_known_by_its_name_and_arguments(
    tool: str, arguments: dict[str, JsonValue], deed: Shell | Write | Edit | None
) -> None:
    assert deed_of(Action(tool=tool, arguments=arguments)) == deed


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/home/me/repo/src/a.py", "src/a.py"),
        ("src/a.py", "src/a.py"),
        ("C:\\repo\\src\\a.py", "src/a.py"),
        ("/testbed/src/new.py", "src/new.py"),
        ("/testbed/new.py", "new.py"),
        ("../../etc/passwd", "passwd"),
    ],
)
def test_a_path_of_another_machine_is_found_in_the_workspace(path: str, found: str) -> None:
    assert inside(path, {"src/a.py": None}) == found
