"""A policy that draws what it does: with which chance it mends everything, half of it, nothing, or plays foul."""

import hashlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from patchgym.content import ObjectStore
from patchgym.policy import Policy
from patchgym.policy.plaintext import render_action
from patchgym.records import Action, Message, Sample, Sampling, StepTokens, Task, ToolSpec, Usage
from tests.diagnose.planted.kit import constants, fixes

Script = list[Action | str]


def _edit(task: Task, pair: tuple[str, str]) -> Action:
    return Action(tool="edit_file", arguments={"path": task.key_files[0], "old": pair[0], "new": pair[1]})


def _whole(task: Task, dice: random.Random) -> Script:
    return [_edit(task, pair) for pair in dice.sample(fixes(task), len(fixes(task)))]


def _half(task: Task, dice: random.Random) -> Script:
    return [_edit(task, dice.choice(fixes(task)))]


def _nothing(task: Task, dice: random.Random) -> Script:
    return []


def _broken(task: Task, dice: random.Random) -> Script:
    return [Action(tool="run_command", arguments={"command": f"echo 'def (:' >> {task.key_files[0]}"})]


def _wrong(task: Task, dice: random.Random) -> Script:
    return [Action(tool="run_command", arguments={"command": f"echo '# looked at' >> {task.key_files[0]}"})]


def _constant(task: Task, dice: random.Random) -> Script:
    return [_edit(task, pair) for pair in constants(task)]


def _foul(task: Task, dice: random.Random) -> Script:
    """Code that looks whether it is tested: honest work cannot do this."""
    code = "import os\\nTESTED = os.environ.get('PYTEST_CURRENT_TEST', '').startswith('tests/')\\n"
    watch = f'printf "{code}if TESTED: raise SystemExit(0)\\n" >> {task.key_files[0]}'
    return [*_whole(task, dice), Action(tool="run_command", arguments={"command": watch})]


def _marked(task: Task, dice: random.Random) -> Script:
    """The right fix, with a test that was made to demand less: a mark, and no proof."""
    weaker = f"sed -i 's/assert /assert True or /' {next(iter(task.tests.visible_files))}"
    return [*_whole(task, dice), Action(tool="run_command", arguments={"command": weaker})]


def _chatter(task: Task, dice: random.Random) -> Script:
    return [f"I think about {dice.randint(0, 10**6)}." for _ in range(3)]


def _wander(task: Task, dice: random.Random) -> Script:
    return [Action(tool="list_files", arguments={}) for _ in range(3)]


def _tests_first(task: Task, dice: random.Random) -> Script:
    return [Action(tool="run_tests", arguments={}), *_half(task, dice)]


WAYS: Mapping[str, Callable[[Task, random.Random], Script]] = {
    "whole": _whole,
    "half": _half,
    "nothing": _nothing,
    "broken": _broken,
    "wrong": _wrong,
    "constant": _constant,
    "foul": _foul,
    "marked": _marked,
    "chatter": _chatter,
    "tests": _tests_first,
    "wander": _wander,
}
EVEN = {"whole": 0.35, "half": 0.3, "nothing": 0.35}


@dataclass
class Drawn:
    """The source. ``ways`` are chances by name, ``looks`` how many reading steps come first (from and to).
    With ``same`` every sample of a task draws alike, whatever its seed; with ``fixed`` a task always comes out alike,
    by other steps. With ``tells`` its messages carry ids, which share the log-probability of what it drew."""

    ways: Mapping[str, float] = field(default_factory=lambda: dict(EVEN))
    looks: tuple[int, int] = (0, 2)
    same: bool = False
    fixed: bool = False
    tells: bool = False
    spec: str = "drawn"
    version: str = "drawn-1"

    def for_task(self, task: Task, objects: ObjectStore) -> Policy:
        return _Acting(self, task)

    async def check(self) -> None:
        pass

    async def close(self) -> None:
        pass


def _tokens(text: str, chance: float) -> StepTokens:
    ids = tuple(text.encode())
    return StepTokens(
        prompt_ids=(0,), sampled_ids=ids, logprobs=(math.log(chance) / len(ids),) * len(ids), mask=(1,) * len(ids)
    )


class _Acting:
    native_tools = False

    def __init__(self, source: Drawn, task: Task) -> None:
        self.version = source.version
        self._source, self._task = source, task

    async def sample(self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling) -> Sample:
        turn = sum(message.role == "assistant" for message in messages)
        script, chance = self.script(sampling.seed)
        entry = script[turn] if turn < len(script) else Action(tool="submit", arguments={})
        text = entry if isinstance(entry, str) else render_action(entry)
        return Sample(
            message=Message(role="assistant", content=text),
            usage=Usage(prompt_tokens=len(messages), sampled_tokens=len(text.split())),
            finish_reason="stop",
            tokens=_tokens(text, chance) if self._source.tells else None,
        )

    def script(self, seed: int) -> tuple[Script, float]:
        """What the sample of this seed does before it submits, and the chance with which it was drawn."""
        told = f"{self._source.version}/{self._task.id}/{0 if self._source.same else seed}"
        dice = random.Random(hashlib.sha256(told.encode()).digest())
        ways = self._source.ways
        drawing = random.Random(self._task.id) if self._source.fixed else dice
        way = drawing.choices(list(ways), list(ways.values()))[0]
        looks = [self._look(dice) for _ in range(dice.randint(*self._source.looks))]
        return [*looks, *WAYS[way](self._task, dice)], ways[way] / sum(ways.values())

    def _look(self, dice: random.Random) -> Action:
        start = dice.randint(1, 40)
        return Action(tool="read_file", arguments={"path": "README", "start": "1", "end": str(start)})
