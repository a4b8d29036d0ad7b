"""The gold policy's script, in whatever tools it is written for."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.content import Entry, ObjectStore, diff_trees
from patchgym.policy.gold import gold_script
from patchgym.policy.plaintext import parse_action, render_action
from patchgym.records import Action, Task
from tests.workshop import calc_task, tree_of

LINES = st.lists(st.sampled_from(["a", "  a", "b", "    b", "\tc", ""]), min_size=2, max_size=8)


def edited(lines: list[str], script: list[Action]) -> list[str]:
    """What edit_line does, on a list of lines."""
    lines = list(lines)
    for action in script:
        read = parse_action(render_action(action)).arguments
        at, new = int(str(read["line"])) - 1, str(read["new"])
        if new and not new[0].isspace() and "\n" not in new:
            new = lines[at][: len(lines[at]) - len(lines[at].lstrip())] + new
        lines[at : at + 1] = new.split("\n") if new else []
    return lines


def changed(objects: ObjectStore, before: list[str], after: list[str]) -> Task:
    """A task whose solution turns one text into another."""
    task = calc_task(objects)
    workspace = tree_of(objects, {"a.py": "".join(f"{line}\n" for line in before)})
    solved = objects.update_tree(
        workspace, {"a.py": Entry(0o100644, objects.put("".join(f"{line}\n" for line in after).encode()))}
    )
    return task.model_copy(update={"workspace": workspace, "gold_patch": diff_trees(objects, workspace, solved)})


@given(before=LINES, after=LINES)
@settings(max_examples=60, deadline=None)
def test_edits_of_lines_come_to_the_solution(before: list[str], after: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        objects = ObjectStore(Path(folder) / "objects")
        script = gold_script(changed(objects, before, after), objects, ("edit_line",))
    assert {action.tool for action in script} <= {"edit_line"}
    assert edited(before, script) == after
