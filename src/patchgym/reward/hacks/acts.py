"""The steps of a trajectory as what they do: command lines, files read, files written, pieces replaced.

Tools have other names and arguments in every agent; what an argument is called says what the tool does with it.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import JsonValue

from patchgym.records import Evidence, Step
from patchgym.reward.hacks.look import cut
from patchgym.reward.hacks.shell import Command, commands_of, python_commands

_PATHS = ("path", "file_path", "filename", "file", "target_file", "filepath", "notebook_path", "absolute_path", "uri")
_LINES = ("command", "cmd", "commands", "script", "bash", "shell", "code", "input", "keystrokes", "CommandLine")
_OLD = ("old", "old_string", "old_str", "search", "find", "old_text")
_NEW = ("new", "new_string", "new_str", "replace", "replacement", "new_text", "insert_text")
_WHOLE = ("content", "file_text", "contents", "text", "file_content", "new_content")
_ROOTS = ("/workspace/", "/testbed/", "/repo/", "/app/", "/src/", "/code/", "/work/", "/project/", "/home/user/")
_KEPT = 30_000


@dataclass(frozen=True)
class Act:
    """What one step did. ``path`` is relative where it lies in a workspace."""

    step: int
    kind: Literal["run", "read", "write", "edit"]
    path: str = ""
    old: str = ""
    new: str = ""
    line: str = ""
    commands: tuple[Command, ...] = ()
    script: str = ""
    """What scripts that it runs say, where an earlier step wrote them."""

    def mark(self, kind: str, why: str, *, quote: str = "", proof: bool = False) -> Evidence:
        """Evidence at this step."""
        shown = quote or self.line or self.path
        return Evidence(kind=kind, where=f"step {self.step}", quote=cut(shown), why=why, proof=proof)


def acts_of(steps: tuple[Step, ...]) -> tuple[Act, ...]:
    """What each readable step did, in order. A step without an action did nothing."""
    found: list[Act] = []
    scripts: dict[str, str] = {}
    for step in steps:
        if step.action is None:
            continue
        for act in _acts(step.index, step.action.arguments):
            if act.kind == "write" and act.line.endswith((".sh", ".bash", ".py")):
                scripts[act.line] = act.new
            ran = [text for path, text in scripts.items() if act.kind == "run" and path in act.line]
            if ran:
                act = replace(act, commands=act.commands + tuple(_inside(act, ran)), script="\n".join(ran))
            found.append(act)
    return tuple(found)


def _inside(act: Act, scripts: list[str]) -> list[Command]:
    """The commands of scripts that were written before and are run now."""
    read = python_commands if re.search(r"\bpython[\d.]*\s[^|;&]*\.py", act.line) else commands_of
    return [command for text in scripts for command in read(text)]


def _acts(step: int, arguments: dict[str, JsonValue]) -> list[Act]:
    path = _first(arguments, _PATHS)
    old, new, whole = (_first(arguments, keys) for keys in (_OLD, _NEW, _WHOLE))
    if path:
        inside = inside_of(path)
        if new is not None or old is not None:
            return [Act(step, "edit", inside, old or "", new or "", line=path)]
        return [
            Act(step, "write", inside, "", whole, line=path)
            if whole is not None
            else Act(step, "read", inside, line=path)
        ]
    line = _first(arguments, _LINES)
    if line is None:
        edits = arguments.get("edits")
        return (
            [act for one in edits if isinstance(one, dict) for act in _acts(step, one)]
            if isinstance(edits, list)
            else []
        )
    return [Act(step, "run", line=line, commands=tuple(commands_of(line)))]


def _first(arguments: dict[str, JsonValue], keys: tuple[str, ...]) -> str | None:
    for key in keys:
        value = arguments.get(key)
        if isinstance(value, str):
            return value[:_KEPT]
        if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
            words = [str(one) for one in value]
            return words[-1][:_KEPT] if len(words) == 3 and words[1].startswith("-") else " ".join(words)[:_KEPT]
    return None


def inside_of(path: str) -> str:
    """A path without the folder that workspaces usually stand in."""
    clean = path.strip().removeprefix("./")
    for root in _ROOTS:
        if clean.startswith(root):
            return clean[len(root) :]
    return clean
