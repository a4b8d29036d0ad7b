"""The noisy policy: the gold policy's script with wrong turns drawn at random.

It is privileged, as the gold policy is. It gives what a weak model gives without one: reading in the wrong places,
commands whose output changes from run to run, edits that break something, messages that are no action, and at times a
solution. So collecting, replaying and searching can be measured without a model.
"""

import hashlib
import random
from collections.abc import Sequence

from patchgym.content import ObjectStore
from patchgym.policy.gold import gold_script
from patchgym.policy.plaintext import render_action
from patchgym.records import Action, Message, Sample, Sampling, Task, ToolSpec, Usage

_COMMANDS = (
    "ls -la",
    "date",
    "python -c 'print(object())'",
    "mktemp",
    "find . -name '*.py' | head -50",
    "python -m pytest -q -x 2>&1 | tail -5",
    "seq 1 20000",
    "false",
    "sleep 0.2; echo done",
    "printf '\\377\\376'",
    "git status",
)
_UNREADABLE = "I think that I should look at the code first."


class NoisyPolicy:
    """Takes the next step of the gold script, or, with the chance of ``noise``, a wrong turn. What it does next follows
    from the conversation and the seed of the sampling alone."""

    native_tools = False

    def __init__(self, task: Task, objects: ObjectStore, noise: float, version: str) -> None:
        """Raises:
        PatchError: the gold patch does not apply to the workspace.
        """
        self.version = version
        self._noise = noise
        self._gold = [render_action(action) for action in gold_script(task, objects)]
        self._paths = sorted(objects.entries(task.workspace))
        self._key_files = task.key_files

    async def sample(self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling) -> Sample:
        """The next message; token counts are zero, for nothing is sampled."""
        said = [message.content for message in messages if message.role == "assistant"]
        seen = hashlib.sha256("\0".join([str(sampling.seed), *said]).encode()).digest()
        dice = random.Random(seen)
        done = 0
        for text in said:
            done += done < len(self._gold) and text == self._gold[done]
        text = self._wrong_turn(dice) if dice.random() < self._noise or done == len(self._gold) else self._gold[done]
        return Sample(
            message=Message(role="assistant", content=text),
            usage=Usage(prompt_tokens=0, sampled_tokens=0),
            finish_reason="stop",
        )

    def _wrong_turn(self, dice: random.Random) -> str:
        chance = dice.random()
        path = dice.choice(self._paths)
        if chance < 0.1:
            return _UNREADABLE
        if chance < 0.25:
            start = dice.randint(1, 200)
            return render_action(Action(tool="read_file", arguments={"path": path, "start": start, "end": start + 20}))
        if chance < 0.35:
            return render_action(Action(tool="search", arguments={"pattern": dice.choice(("def ", "return", "zzz"))}))
        if chance < 0.45:
            return render_action(Action(tool="list_files", arguments={}))
        if chance < 0.55:
            return render_action(Action(tool="run_tests", arguments={}))
        if chance < 0.65:
            name = f"notes{dice.randint(0, 3)}.txt"
            return render_action(Action(tool="write_file", arguments={"path": name, "content": f"seen {path}"}))
        if chance < 0.72:
            key = dice.choice(self._key_files) if self._key_files else path
            return render_action(
                Action(tool="run_command", arguments={"command": f"sed -i '1i import nothing' '{key}'"})
            )
        if chance < 0.75:
            return render_action(Action(tool="submit", arguments={}))
        return render_action(Action(tool="run_command", arguments={"command": dice.choice(_COMMANDS)}))
