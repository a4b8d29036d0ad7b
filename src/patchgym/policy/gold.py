"""The gold policy's script: a task's own solution, worked out through the agent's tools.

It is privileged: it takes a ``Task``, not a ``TaskView``. It proves that the whole path from action to verdict
lets a right answer through, and it writes demonstrations.
"""

import difflib

from patchgym.content import ObjectStore, apply_patch
from patchgym.records import Action, Task

_AROUND = 5


def gold_script(task: Task, objects: ObjectStore) -> list[Action]:
    """Run the failing tests, read around each change, make it, run the tests again and submit.

    Raises:
        PatchError: the gold patch does not apply to the workspace.
        DataError: the workspace is not in ``objects``.
    """
    before = objects.entries(task.workspace)
    solved = apply_patch(objects, task.workspace, task.gold_patch)
    after = objects.entries(solved)
    script = [Action(tool="run_tests", arguments={})]
    for path in objects.changed_paths(task.workspace, solved):
        old = _text(objects.get(before[path].id)) if path in before else None
        new = _text(objects.get(after[path].id)) if path in after else None
        if new is None:
            script.append(Action(tool="run_command", arguments={"command": f"rm -- '{path}'"}))
        elif old is None:
            script.append(Action(tool="write_file", arguments={"path": path, "content": new}))
        else:
            script += _edits(path, old, new)
    return [*script, Action(tool="run_tests", arguments={}), Action(tool="submit", arguments={})]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _edits(path: str, old: str, new: str) -> list[Action]:
    """Read-and-edit pairs that turn ``old`` into ``new``, last change first so that earlier line numbers stay true."""
    a, b = old.splitlines(keepends=True), new.splitlines(keepends=True)
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    changes = [opcode for opcode in matcher.get_opcodes() if opcode[0] != "equal"]
    script: list[Action] = []
    for _, start, end, new_start, new_end in reversed(changes):
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
