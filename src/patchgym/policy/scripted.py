"""Policies that follow a script: for tests, for demonstrations and for measuring everything but the model."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from patchgym.errors import DataError, UsageError
from patchgym.policy.plaintext import render_action
from patchgym.records import Action, Message, Sample, Sampling, ToolSpec, Usage

_SUBMIT = Action(tool="submit", arguments={})


class ScriptedPolicy:
    """Answers the k-th turn with the k-th entry of its script (an action, or the raw text of a message), and submits
    when the script is over. It ignores what it sees."""

    native_tools = False

    def __init__(self, script: Sequence[Action | str], version: str) -> None:
        self.version = version
        self._script = [entry if isinstance(entry, str) else render_action(entry) for entry in script]

    async def sample(self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling) -> Sample:
        """The next entry of the script; token counts are zero, for nothing is sampled."""
        turn = sum(message.role == "assistant" for message in messages)
        text = self._script[turn] if turn < len(self._script) else render_action(_SUBMIT)
        return Sample(
            message=Message(role="assistant", content=text),
            usage=Usage(prompt_tokens=0, sampled_tokens=0),
            finish_reason="stop",
        )


class ScriptFile:
    """Scripts by task id, read from one JSON file.

    The file is an object that maps task ids (or ``*`` for every other task) to a list of entries: an object with
    ``tool`` and ``arguments``, or a string, which is sent as it is.
    """

    def __init__(self, path: Path) -> None:
        """Read and check the file.

        Raises:
            UsageError: there is no such file.
            DataError: it is not of that form.
        """
        if not path.is_file():
            raise UsageError(f"There is no script file {path}", mend="Name an existing JSON file: scripted:FILE.")
        raw = path.read_bytes()
        try:
            data = json.loads(raw)
        except ValueError as error:
            raise DataError(f"{path} is not JSON", why=str(error)) from error
        if not isinstance(data, Mapping):
            raise DataError(f"{path} is no JSON object", mend="Map task ids, or *, to lists of actions.")
        self._scripts = {
            str(task): [_entry(item, path) for item in _listed(items, path)] for task, items in data.items()
        }
        self.version = f"scripted@{hashlib.sha256(raw).hexdigest()[:12]}"

    def for_task(self, task_id: str) -> ScriptedPolicy:
        """The policy for one task; an empty script (submit at once) where the file has none."""
        return ScriptedPolicy(self._scripts.get(task_id, self._scripts.get("*", [])), self.version)


def _listed(items: object, path: Path) -> list[object]:
    if not isinstance(items, list):
        raise DataError(f"{path}: a script is not a list of actions")
    return items


def _entry(item: object, path: Path) -> Action | str:
    match item:
        case str(text):
            return text
        case {"tool": str(tool), **rest} if rest.keys() <= {"arguments"} and isinstance(
            rest.get("arguments", {}), dict
        ):
            return Action(tool=tool, arguments=rest.get("arguments", {}))
    raise DataError(f"{path}: not an action: {json.dumps(item)[:80]}", mend='Write {"tool": ..., "arguments": {...}}.')
