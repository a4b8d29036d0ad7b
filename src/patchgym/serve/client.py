"""The client as a policy."""

import asyncio
import json
from collections.abc import Callable, Sequence

from patchgym.content import ObjectStore
from patchgym.records import Message, Sample, Sampling, Task, ToolCall, ToolSpec, Usage
from patchgym.serve.problems import Refused
from patchgym.serve.sheets import StepWanted

_UNCOUNTED = Usage(prompt_tokens=0, sampled_tokens=0)


class Client:
    """A policy (and the source of it, for one episode) whose answers come from outside. When it is asked, it keeps what
    it was told, calls ``asked`` and waits until ``answer`` is called."""

    native_tools = True

    def __init__(self, name: str, version: str | None, asked: Callable[[], None]) -> None:
        self.spec = f"client:{name}"
        self.version = version or self.spec
        self.messages: Sequence[Message] = ()
        self.tools: Sequence[ToolSpec] = ()
        self._asked = asked
        self._answers = asyncio.Queue[Sample](1)

    def for_task(self, task: Task, objects: ObjectStore) -> "Client":
        """Itself."""
        return self

    async def check(self) -> None:
        """Nothing to check: it came by itself."""

    async def close(self) -> None:
        """Nothing is held."""

    async def sample(self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling) -> Sample:
        """The client's next answer, once it is there."""
        self.messages, self.tools = messages, tools
        self._asked()
        return await self._answers.get()

    def answer(self, sample: Sample) -> None:
        """Give the answer that is waited for."""
        self._answers.put_nowait(sample)


def sample_of(wanted: StepWanted, turn: int) -> Sample:
    """An action of a client as an answer with one native tool call. Tokens count where the client told them.

    Raises:
        Refused: ``invalid``: the arguments hold a number that JSON has not.
    """
    name, arguments = ("run_command", {"command": wanted.command}) if wanted.tool is None else (wanted.tool, None)
    try:
        text = json.dumps(wanted.arguments if arguments is None else arguments, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise Refused("invalid", f"arguments: {error}") from error
    return Sample(
        message=Message(
            role="assistant", content=wanted.text, tool_calls=(ToolCall(id=f"call-{turn}", name=name, arguments=text),)
        ),
        usage=wanted.usage or _UNCOUNTED,
        counted=wanted.usage is not None,
        finish_reason="tool_calls",
    )
