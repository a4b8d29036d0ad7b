"""One action in a sandbox, and what is recorded of it."""

import time
from collections.abc import Mapping

from pydantic import JsonValue

from patchgym.agent.tools import TOOLS, Tool, ToolResult, Workbench, checked_arguments
from patchgym.content import ObjectStore, written_out
from patchgym.policy import ProtocolError
from patchgym.records import Action, Observation, Stream
from patchgym.sandbox import Cut


def checked(action: Action, tools: Mapping[str, Tool] = TOOLS) -> tuple[Tool, Mapping[str, JsonValue]]:
    """The tool that an action names, of those that the agent has, and its arguments as the tool takes them.

    Raises:
        ProtocolError, ValueError: there is no such tool, or the arguments are not what it takes.
    """
    tool = tools.get(action.tool)
    if tool is None:
        raise ProtocolError(f"There is no tool {action.tool!r}; there are: {', '.join(tools)}.")
    return tool, checked_arguments(tool, action)


async def act(bench: Workbench, action: Action) -> Observation:
    """Do what an action asks for.

    Raises:
        ProtocolError, ValueError: as ``checked``.
        SandboxError: the sandbox was lost.
    """
    tool, arguments = checked(action)
    clock = time.monotonic()
    try:
        result = await tool.run(bench, arguments)
    except OSError as error:  # of the sandbox's read and write: the path is not what the model thinks
        path = arguments.get("path", "")
        result = ToolResult(f"{path}: {(error.strerror or str(error)).lower()}", ok=False)
    return _observation(result, time.monotonic() - clock, bench.view.limits.output_bytes, bench.objects)


def _observation(result: ToolResult, seconds: float, limit: int, objects: ObjectStore) -> Observation:
    shown = _cut(written_out(result.shown), limit)
    done = result.process
    if done is None:
        return Observation(shown=shown, ok=result.ok, seconds=seconds)
    return Observation(
        shown=shown,
        ok=result.ok,
        exit_code=done.exit_code,
        stdout=_stream(done.stdout, done.stdout_size, done.stdout_cut, limit, objects),
        stderr=_stream(done.stderr, done.stderr_size, done.stderr_cut, limit, objects),
        timed_out=done.timed_out,
        ending=done.ending,
        limits_by=done.limits_by,
        seconds=seconds,
        tests=result.tests,
    )


def _stream(kept: bytes, size: int, cut: Cut | None, limit: int, objects: ObjectStore) -> Stream:
    """A stream's record: short exact text in the line itself, anything else also whole in the object store."""
    text = kept.decode("utf-8", "backslashreplace")
    shown = _cut(text, limit)
    if cut is not None and cut.blob in objects:
        return Stream(text=shown, size=size, blob=cut.blob)
    exact = shown.encode("utf-8") == kept
    return Stream(text=shown, size=size, blob=None if exact else objects.put(kept), cut=len(kept) < size)


def _cut(text: str, limit: int) -> str:
    """At most about ``limit`` characters: both ends, with a note of what is left out between them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"
