"""Actions of other agents, done in our sandbox: commands and edits by the names that those agents give them.

An imported log holds no states. Where its repository is at hand, what it did can be done again from the commit that it
began at: each command is compared with what was recorded of it, and the states and the final patch come to light. What
only looks (reading, searching, planning) changes nothing and is not done; what goes beyond the workspace (the network,
a person, another agent) cannot be.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from pydantic import JsonValue

from patchgym.content import ObjectStore, diff_trees
from patchgym.errors import SandboxError
from patchgym.records import Action, Observation, Step, Trajectory
from patchgym.rollout.likeness import Difference, normalised
from patchgym.rollout.replay import Divergence, Replayed
from patchgym.sandbox import ExecResult, Sandbox, SandboxFactory, SandboxSpec

_SHELL = frozenset(
    [
        "bash",
        "shell",
        "execute_bash",
        "run_shell_command",
        "exec_command",
        "local_shell",
        "local_shell_call",
        "run_command",
        "execute_command",
        "terminal",
        "run",
        "cmdrunaction",
        "cmd",
    ]
)
_COMMAND_KEYS = ("command", "cmd", "script")
_PATH_KEYS = ("file_path", "path", "absolute_path", "filename", "target_file")
_WRITE = {"write", "write_file", "create_file", "create"}
_EDIT = {"edit", "replace", "str_replace", "edit_file", "multiedit"}
_EDITOR = {"str_replace_editor", "str_replace_based_edit_tool", "file_editor"}
_OLD_KEYS, _NEW_KEYS = ("old_string", "old_str", "old"), ("new_string", "new_str", "new")
_CONTENT_KEYS = ("content", "file_text", "contents", "text")
_SECONDS = 120.0


@dataclass(frozen=True)
class Shell:
    """A command line."""

    command: str


@dataclass(frozen=True)
class Write:
    """A whole file."""

    path: str
    content: str


@dataclass(frozen=True)
class Edit:
    """Texts to be replaced by others, one after another; with ``every``, wherever they stand."""

    path: str
    changes: tuple[tuple[str, str], ...]
    every: bool = False


def deed_of(action: Action) -> Shell | Write | Edit | None:
    """What an action of another agent does to a workspace; None where it does nothing, or nothing that we can do."""
    name, arguments = action.tool.rpartition(".")[2].lower(), action.arguments
    path = _text(arguments, _PATH_KEYS)
    if name in _EDITOR:
        name = str(arguments.get("command", ""))
    if name in _SHELL:
        given = next((arguments[key] for key in _COMMAND_KEYS if key in arguments), None)
        return _shell(given)
    if path is None:
        return None
    content = _text(arguments, _CONTENT_KEYS)
    if name in _WRITE and content is not None:
        return Write(path, content)
    if name in _EDIT:
        listed = arguments.get("edits")
        parts = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else [arguments]
        changes = [(_text(part, _OLD_KEYS), _text(part, _NEW_KEYS)) for part in parts]
        whole = tuple((old, new) for old, new in changes if old is not None and new is not None)
        if whole and len(whole) == len(changes):
            return Edit(path, whole, arguments.get("replace_all") is True)
    return None


def _shell(given: JsonValue) -> Shell | None:
    if isinstance(given, str) and given.strip():
        return Shell(given)
    if isinstance(given, list) and given and all(isinstance(part, str) for part in given):
        words = [str(part) for part in given]
        inner = len(words) == 3 and words[0].rpartition("/")[2] in ("bash", "sh") and words[1] in ("-c", "-lc")
        return Shell(words[2] if inner else shlex.join(words))
    return None


def _text(arguments: Mapping[str, JsonValue], keys: Sequence[str]) -> str | None:
    return next((value for key in keys if isinstance(value := arguments.get(key), str)), None)


class ForeignReplayer:
    """Does imported trajectories again. ``factory`` makes sandboxes from ``objects``, into which states go."""

    def __init__(self, objects: ObjectStore, factory: SandboxFactory) -> None:
        self._objects, self._factory = objects, factory

    async def replay(self, trajectory: Trajectory, start: str) -> tuple[Replayed, Trajectory]:
        """Do every command and edit of a trajectory again, from the tree ``start``: what came of it, and the trajectory
        with its states and its final patch.

        Raises:
            PrerequisiteError, StorageError: nothing can be replayed on this machine.
        """
        state, fault = start, None
        steps: list[Step] = []
        counts = {"exact": 0, "normalised": 0, "diverged": 0, "skipped": 0}
        divergences: list[Divergence] = []
        sandbox = await self._factory.create(SandboxSpec(tree=start))
        try:
            for step in trajectory.steps:
                before = state
                deed = deed_of(step.action) if step.action is not None else None
                if deed is None or step.observation is None:
                    counts["skipped"] += 1
                else:
                    seen = await self._do(sandbox, deed, state)
                    state = await sandbox.snapshot()
                    likeness, why = _likeness(step.observation, seen)
                    counts[likeness] += 1
                    if likeness == "diverged":
                        divergences.append(_divergence(trajectory.id, step, why, seen))
                changed = self._objects.changed_paths(before, state)
                steps.append(
                    step.model_copy(update={"state_before": before, "state_after": state, "changed_paths": changed})
                )
        except SandboxError as error:
            fault = str(error)
        finally:
            await sandbox.close()
        patch = trajectory.final_patch or diff_trees(self._objects, start, state)
        done = {"steps": (*steps, *trajectory.steps[len(steps) :]), "final_state": state, "final_patch": patch}
        replayed = Replayed(trajectory=trajectory.id, **counts, divergences=tuple(divergences), fault=fault)
        return replayed, trajectory.model_copy(update=done)

    async def _do(self, sandbox: Sandbox, deed: Shell | Write | Edit, state: str) -> ExecResult | bool:
        """The result of a command, or whether a file could be written as it was asked for."""
        if isinstance(deed, Shell):
            return await sandbox.exec(["bash", "-c", deed.command], timeout_s=_SECONDS)
        path = inside(deed.path, self._objects.entries(state))
        try:
            if isinstance(deed, Write):
                await sandbox.write(path, deed.content.encode("utf-8", "surrogateescape"))
                return True
            text = (await sandbox.read(path)).decode("utf-8", "surrogateescape")
            for old, new in deed.changes:
                if not old or old not in text or (text.count(old) > 1 and not deed.every):
                    return False
                text = text.replace(old, new)
            await sandbox.write(path, text.encode("utf-8", "surrogateescape"))
        except OSError:
            return False
        return True


def inside(path: str, files: Mapping[str, object]) -> str:
    """Where in the workspace a path of another machine lies: the longest end of it that is a file there, else the
    longest end whose folder is one, else its last part."""
    parts = [part for part in PurePosixPath(path.replace("\\", "/")).parts if part not in ("/", "..", ".")]
    ends = ["/".join(parts[number:]) for number in range(len(parts))]
    folders = {str(parent) for name in files for parent in PurePosixPath(name).parents}
    for end in ends:
        if end in files:
            return end
    for end in ends[:-1]:
        if str(PurePosixPath(end).parent) in folders:
            return end
    return ends[-1] if ends else path


def _likeness(recorded: Observation, seen: ExecResult | bool) -> tuple[str, tuple[str, ...]]:
    """How like a result is to what the log says of it, and what differs. Logs lay out output in ways of their own: it
    is the same where all of it stands in what was recorded."""
    if isinstance(seen, bool):
        same = recorded.ok is None or recorded.ok == seen
        return ("exact", ()) if same else ("diverged", ("ok",))
    if recorded.exit_code is not None and recorded.exit_code != seen.exit_code:
        return "diverged", ("exit_code",)
    told = recorded.stdout.text if recorded.stdout is not None else recorded.shown
    output = (seen.stdout + (b"" if recorded.stdout is not None else seen.stderr)).decode("utf-8", "backslashreplace")
    if told.strip() == output.strip():
        return "exact", ()
    wanted, whole = (" ".join(normalised(text).split()) for text in (output, told))
    return ("normalised", ()) if wanted in whole else ("diverged", ("output",))


def _divergence(name: str, step: Step, what: tuple[str, ...], seen: ExecResult | bool) -> Divergence:
    assert step.action is not None
    assert step.observation is not None
    if isinstance(seen, bool):
        old, new = str(step.observation.ok), str(seen)
    elif what == ("exit_code",):
        old, new = str(step.observation.exit_code), str(seen.exit_code)
    else:
        old, new = step.observation.shown, (seen.stdout + seen.stderr).decode("utf-8", "backslashreplace")
    return Divergence(
        trajectory=name,
        step=step.index,
        tool=step.action.tool,
        what=what,
        reason="environment",
        diff=Difference(what[0], old, new).shown(),
        restarted=False,
    )
