"""The gold policy's script: a task's own solution, worked out through the agent's tools.

It is privileged: it takes a ``Task``, not a ``TaskView``. It proves that the whole path from action to verdict
lets a right answer through, and it writes demonstrations.
"""

import difflib
from collections.abc import Collection

from patchgym.content import ObjectStore, apply_patch
from patchgym.records import Action, Task

_AROUND = 5


def gold_script(task: Task, objects: ObjectStore, tools: Collection[str] = ()) -> list[Action]:
    """Run the failing tests, read around each change, make it, run the tests again and submit; as far as ``tools``
    (none named: all) let it. Changes are made line by line where that is all that an agent can do.

    Raises:
        PatchError: the gold patch does not apply to the workspace.
        DataError: the workspace is not in ``objects``.
    """
    before = objects.entries(task.workspace)
    solved = apply_patch(objects, task.workspace, task.gold_patch)
    after = objects.entries(solved)
    by_line = "edit_line" in tools and "edit_file" not in tools
    script = [Action(tool="run_tests", arguments={})]
    for path in objects.changed_paths(task.workspace, solved):
        old = _text(objects.get(before[path].id)) if path in before else None
        new = _text(objects.get(after[path].id)) if path in after else None
        if new is None:
            script.append(Action(tool="run_command", arguments={"command": f"rm -- '{path}'"}))
        elif old is None:
            script.append(Action(tool="write_file", arguments={"path": path, "content": new}))
        else:
            script += _line_edits(path, old, new) if by_line else _edits(path, old, new)
    script += [Action(tool="run_tests", arguments={}), Action(tool="submit", arguments={})]
    return [action for action in script if not tools or action.tool in tools]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _changes(a: list[str], b: list[str]) -> list[tuple[int, int, int, int]]:
    """What differs between two lists of lines: start and end in each, last change first, so that earlier line numbers
    stay true while it is worked through."""
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    return [(i1, i2, j1, j2) for kind, i1, i2, j1, j2 in reversed(matcher.get_opcodes()) if kind != "equal"]


def _line_edits(path: str, old: str, new: str) -> list[Action]:
    """Edits of one line each: of a block that is changed, the first line becomes the whole new block."""
    a, b = old.splitlines(), new.splitlines()
    script: list[Action] = []
    for start, end, new_start, new_end in _changes(a, b):
        block = b[new_start:new_end]
        if start == end:  # lines are put in: beside the one before, or the first
            at = max(0, start - 1)
            block = [a[at], *block] if start else [*block, a[at]]
            start, end = at, at + 1
        if len(block) == 1 and _indentation(block[0]) == _indentation(a[start]) and block[0].strip():
            block = [block[0].lstrip()]
        elif len(block) == 1 and block[0][:1].strip() == block[0][:1]:  # alone it would be indented, or delete the line
            block, start, end = (
                ([*block, a[end]], start, end + 1) if end < len(a) else ([a[start - 1], *block], start - 1, end)
            )
        script += [_line_edit(path, line + 1, "") for line in range(end - 1, start, -1)]
        script.append(_line_edit(path, start + 1, "\n".join(block)))
    return script


def _line_edit(path: str, line: int, new: str) -> Action:
    return Action(tool="edit_line", arguments={"path": path, "line": line, "new": new})


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _edits(path: str, old: str, new: str) -> list[Action]:
    """Read-and-edit pairs that turn ``old`` into ``new``."""
    a, b = old.splitlines(keepends=True), new.splitlines(keepends=True)
    script: list[Action] = []
    for start, end, new_start, new_end in _changes(a, b):
        first, last = max(1, start + 1 - _AROUND), min(len(a), end + _AROUND)
        script.append(Action(tool="read_file", arguments={"path": path, "start": first, "end": last}))
        wanted, replacement = _unique(a, start, end, b[new_start:new_end])
        script.append(Action(tool="edit_file", arguments={"path": path, "old": wanted, "new": replacement}))
        a[start:end] = b[new_start:new_end]
    return script


def _unique(lines: list[str], start: int, end: int, replacement: list[str]) -> tuple[str, str]:
    """The changed lines with as much context as makes them occur once in the file, and what takes their place."""
    whole = "".join(lines)
    head, tail = start, end
    while whole.count("".join(lines[head:tail])) != 1 or head == tail:
        if head == 0 and tail == len(lines):
            break
        head, tail = max(0, head - 1), min(len(lines), tail + (1 if head == 0 or tail == end else 0))
    wanted = "".join(lines[head:tail])
    instead = "".join([*lines[head:start], *replacement, *lines[end:tail]])
    # The final newline is left out of both sides where it can be: it is what a person would quote.
    if wanted.endswith("\n") and instead.endswith("\n") and whole.count(wanted[:-1]) == 1:
        return wanted[:-1], instead[:-1]
    return wanted, instead
