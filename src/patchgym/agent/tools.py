"""The agent's tools: each takes checked arguments and a sandbox, and says what it did.

Paths are the model's own words: they go to the sandbox, which keeps them inside the workspace, and nowhere else.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.records import Action, Outcome, TaskView, ToolSpec
from patchgym.sandbox import Ending, ExecResult, Sandbox
from patchgym.testrun import TestRun, run_tests

_LISTED = 200
_MATCHES = 50
_READ_LINES = 80
_FAILURES = 3


@dataclass(frozen=True)
class Workbench:
    """What a tool may use: the sandbox, the task as the agent may know it, the store and tree of the present state,
    and the wall seconds that one command may take."""

    sandbox: Sandbox
    view: TaskView
    objects: ObjectStore
    tree: str
    command_seconds: float


@dataclass(frozen=True)
class ToolResult:
    """What a tool did: the text for the model, whether it could be done, and, where a process ran, its result and the
    test outcomes."""

    shown: str
    ok: bool = True
    process: ExecResult | None = None
    tests: dict[str, Outcome] | None = None


@dataclass(frozen=True)
class Tool:
    """A tool: what a model is told of it and what it does. ``required`` and ``optional`` map argument names to their
    JSON types."""

    name: str
    description: str
    required: Mapping[str, str]
    optional: Mapping[str, str]
    run: Callable[[Workbench, Mapping[str, JsonValue]], Awaitable[ToolResult]]

    def spec(self) -> ToolSpec:
        """The specification for native tool calls."""
        properties: dict[str, JsonValue] = {
            name: {"type": kind} for name, kind in {**self.required, **self.optional}.items()
        }
        return ToolSpec(
            name=self.name,
            description=self.description,
            parameters={
                "type": "object",
                "properties": properties,
                "required": list(self.required),
                "additionalProperties": False,
            },
        )


def checked_arguments(tool: Tool, action: Action) -> dict[str, JsonValue]:
    """The action's arguments with numbers read from strings.

    Raises:
        ValueError: one is missing, unknown or of the wrong type; the message is meant for the model.
    """
    known = {**tool.required, **tool.optional}
    unknown = [name for name in action.arguments if name not in known]
    if unknown:
        raise ValueError(f"{tool.name} has no argument {unknown[0]}; it takes: {', '.join(known) or 'none'}.")
    missing = [name for name in tool.required if name not in action.arguments]
    if missing:
        raise ValueError(f"{tool.name} needs the argument {missing[0]}.")
    return {name: _typed(name, value, known[name]) for name, value in action.arguments.items()}


def _typed(name: str, value: JsonValue, kind: str) -> JsonValue:
    if kind == "string" and isinstance(value, str):
        return value
    if kind == "integer" and isinstance(value, int | str) and not isinstance(value, bool):
        try:
            return int(value)
        except ValueError:
            pass
    raise ValueError(f"The argument {name} must be {'a whole number' if kind == 'integer' else 'text'}.")


def _str(arguments: Mapping[str, JsonValue], name: str, default: str = "") -> str:
    return cast("str", arguments.get(name, default))


async def _list_files(bench: Workbench, arguments: Mapping[str, JsonValue]) -> ToolResult:
    folder = _str(arguments, "path").strip("/").removeprefix("./")
    prefix = "" if folder in ("", ".") else folder + "/"
    paths = sorted(path for path in bench.objects.entries(bench.tree) if path.startswith(prefix))
    if not paths:
        return ToolResult(f"No files under {folder or '.'}.", ok=False)
    more = [f"... and {len(paths) - _LISTED} more"] if len(paths) > _LISTED else []
    return ToolResult("\n".join(paths[:_LISTED] + more))


async def _read_file(bench: Workbench, arguments: Mapping[str, JsonValue]) -> ToolResult:
    path = _str(arguments, "path")
    text = (await bench.sandbox.read(path)).decode("utf-8", "backslashreplace")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    first = max(1, cast("int", arguments.get("start", 1)))
    last = min(len(lines), cast("int", arguments.get("end", first + _READ_LINES - 1)))
    if lines and first > last:
        return ToolResult(f"{path} has {len(lines)} lines; none in {first}-{last}.", ok=False)
    return ToolResult(f"{path} {first}-{last} of {len(lines)}:\n" + "\n".join(lines[first - 1 : last]))


async def _search(bench: Workbench, arguments: Mapping[str, JsonValue]) -> ToolResult:
    argv = ["grep", "-rnIE", "--exclude-dir=.git", "--exclude-dir=__pycache__", "-e", _str(arguments, "pattern"), "--"]
    found = await bench.sandbox.exec([*argv, _str(arguments, "path", ".") or "."], timeout_s=bench.command_seconds)
    if found.exit_code == 1:
        return ToolResult("No match.", process=found)
    if found.exit_code != 0:
        return ToolResult(found.stderr.decode("utf-8", "backslashreplace") or f"{found.ending}", False, found)
    lines = sorted(found.stdout.decode("utf-8", "backslashreplace").splitlines(), key=_by_place)
    more = [f"... and {len(lines) - _MATCHES} more"] if len(lines) > _MATCHES else []
    return ToolResult("\n".join([line.removeprefix("./")[:200] for line in lines[:_MATCHES]] + more), process=found)


def _by_place(line: str) -> tuple[str, int]:
    path, _, rest = line.partition(":")
    number = rest.partition(":")[0]
    return path, int(number) if number.isdigit() else 0


async def _edit_file(bench: Workbench, arguments: Mapping[str, JsonValue]) -> ToolResult:
    path, old, new = (_str(arguments, name) for name in ("path", "old", "new"))
    text = (await bench.sandbox.read(path)).decode("utf-8", "surrogateescape")
    count = text.count(old) if old else 0
    if count != 1:
        reason = "old is empty" if not old else f"old occurs {count} times"
        return ToolResult(f"{path} was not changed: {reason}; it must occur exactly once.", ok=False)
    if old == new:
        return ToolResult(f"{path} was not changed: old and new are the same.", ok=False)
    await bench.sandbox.write(path, text.replace(old, new).encode("utf-8", "surrogateescape"))
    return ToolResult(f"{path} was changed.")


async def _edit_line(bench: Workbench, arguments: Mapping[str, JsonValue]) -> ToolResult:
    path, number, new = _str(arguments, "path"), cast("int", arguments["line"]), _str(arguments, "new")
    text = (await bench.sandbox.read(path)).decode("utf-8", "surrogateescape")
    lines = text.splitlines(keepends=True)
    if not 1 <= number <= len(lines):
        return ToolResult(f"{path} was not changed: it has {len(lines)} lines.", ok=False)
    old = lines[number - 1]
    body, ending = old.rstrip("\r\n"), old[len(old.rstrip("\r\n")) :]
    if new and not new[0].isspace() and "\n" not in new:
        new = body[: len(body) - len(body.lstrip())] + new
    if new == body:
        return ToolResult(f"{path} was not changed: line {number} is that already.", ok=False)
    lines[number - 1] = new + ending if new else ""
    await bench.sandbox.write(path, "".join(lines).encode("utf-8", "surrogateescape"))
    return ToolResult(f"{path} was changed in line {number}.")


async def _write_file(bench: Workbench, arguments: Mapping[str, JsonValue]) -> ToolResult:
    path, content = _str(arguments, "path"), _str(arguments, "content")
    ending = "" if not content or content.endswith("\n") else "\n"
    await bench.sandbox.write(path, (content + ending).encode("utf-8", "surrogateescape"))
    return ToolResult(f"{path} was written.")


async def _run_command(bench: Workbench, arguments: Mapping[str, JsonValue]) -> ToolResult:
    argv = ["/bin/sh", "-c", _str(arguments, "command")]
    done = await bench.sandbox.exec(argv, timeout_s=bench.command_seconds)
    parts = [stream.decode("utf-8", "backslashreplace").rstrip() for stream in (done.stdout, done.stderr) if stream]
    return ToolResult("\n".join([*parts, _ending_line(done)]), ok=done.ending is Ending.EXITED, process=done)


async def _run_tests(bench: Workbench, arguments: Mapping[str, JsonValue]) -> ToolResult:
    wanted = _str(arguments, "tests")
    ids = [] if wanted == "all" else [wanted] if wanted else list(bench.view.failing_tests)
    seconds = min(bench.view.test_timeout_s, bench.command_seconds)
    run = await run_tests(bench.sandbox, bench.view.environment, ids, timeout_s=seconds)
    return ToolResult(
        _test_summary(run, bench.view.limits.output_bytes // 4),
        ok=run.complete,
        process=run.process,
        tests=run.outcomes,
    )


async def _submit(bench: Workbench, arguments: Mapping[str, JsonValue]) -> ToolResult:
    return ToolResult("Submitted.")


def _ending_line(done: ExecResult) -> str:
    if done.ending is Ending.EXITED:
        return f"[exit code {done.exit_code}]"
    if done.ending is Ending.TIMED_OUT:
        return f"[killed: still running after {done.seconds:.0f} s]"
    return f"[{done.ending.replace('_', ' ')}{f' {done.signal}' if done.signal else ''}]"


def _test_summary(run: TestRun, size: int) -> str:
    """Counts first, then the first failures, each cut to the last ``size`` characters, where the reason stands."""
    counts = {outcome: list(run.outcomes.values()).count(outcome) for outcome in Outcome}
    lines = [", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count) or "no tests ran"]
    if not run.complete:
        lines.append(f"The test process did not come to its end ({run.ending}).")
    for test, text in list(run.failures.items())[:_FAILURES]:
        lines += [f"FAILED {test}", text.strip()[-size:]]
    if not run.complete and not run.failures:
        lines.append(run.log[-size:])
    return "\n".join(lines)


_NONE: Mapping[str, str] = {}

TOOLS: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool("run_tests", "Run the failing tests, one test id, or all.", _NONE, {"tests": "string"}, _run_tests),
        Tool(
            "read_file",
            "Show lines start to end of a file.",
            {"path": "string"},
            {"start": "integer", "end": "integer"},
            _read_file,
        ),
        Tool("search", "Find lines that match a pattern.", {"pattern": "string"}, {"path": "string"}, _search),
        Tool("list_files", "List files below a folder.", _NONE, {"path": "string"}, _list_files),
        Tool(
            "edit_file",
            "Replace old, which must occur exactly once, by new.",
            {"path": "string", "old": "string", "new": "string"},
            _NONE,
            _edit_file,
        ),
        Tool(
            "edit_line",
            "Put new in the place of a line, whose indentation it takes over.",
            {"path": "string", "line": "integer", "new": "string"},
            _NONE,
            _edit_line,
        ),
        Tool("write_file", "Create or replace a file.", {"path": "string", "content": "string"}, _NONE, _write_file),
        Tool("run_command", "Run a shell command.", {"command": "string"}, _NONE, _run_command),
        Tool("submit", "Hand in the work when the tests pass.", _NONE, _NONE, _submit),
    )
}
"""Every tool by name, in the order in which a model is told of them."""

USUAL_TOOLS = tuple(name for name in TOOLS if name != "edit_line")
"""What an agent has if nothing else is asked for: editing by line is for models too small to quote what they edit."""


def tools_named(names: Sequence[str]) -> Mapping[str, Tool]:
    """The tools of those names.

    Raises:
        ValueError: there is none of a name.
    """
    unknown = [name for name in names if name not in TOOLS]
    if unknown:
        raise ValueError(f"there is no tool {unknown[0]!r}; there are: {', '.join(TOOLS)}")
    return {name: tool for name, tool in TOOLS.items() if name in names}
