"""Rows of chat messages as OpenAI's interfaces have them: one for each path of a trajectory, and where a conversation
was compacted, one for each part of it."""

from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from patchgym.records import Message, ToolSpec, Trajectory, Verdict
from patchgym.traces.formats import chat as reader
from patchgym.traces.intake import Intake
from patchgym.traces.paths import conversations, messages_of
from patchgym.traces.writers.writer import Known, Reason, Row, Unwritable

NAME = reader.NAME
ABOUT = "rows of chat messages with tools, as OpenAI's interfaces have them"
FOLDER = False
HOLDS: frozenset[str] | None = None
_CALL = "STRUCT(id VARCHAR, type VARCHAR, function STRUCT(name VARCHAR, arguments VARCHAR))[]"
_MESSAGE = (
    f"STRUCT(role VARCHAR, content VARCHAR, reasoning_content VARCHAR, tool_calls {_CALL}, tool_call_id VARCHAR)[]"
)
COLUMNS: Mapping[str, str] = {
    "trajectory_id": "VARCHAR",
    "instance_id": "VARCHAR",
    "repo": "VARCHAR",
    "base_commit": "VARCHAR",
    "agent": "VARCHAR",
    "model": "VARCHAR",
    "path": "BIGINT",
    "part": "BIGINT",
    "messages": _MESSAGE,
    "tools": "VARCHAR",
    "exit_status": "VARCHAR",
    "resolved": "BOOLEAN",
    "reward": "DOUBLE",
    "seconds": "DOUBLE",
    "model_patch": "VARCHAR",
}


def rows(trajectory: Trajectory, known: Known) -> Sequence[Row]:
    """See ``Writer.rows``."""
    if not trajectory.steps:
        raise Unwritable(Reason.NO_STEPS)
    stretches = conversations(trajectory)
    if stretches is None:
        raise Unwritable(Reason.BROKEN_PATH)
    repo, commit = known.repo_and_commit(trajectory)
    scored = trajectory.report is not None and trajectory.report.verdict is not Verdict.INFRA_ERROR
    return [
        {
            "trajectory_id": trajectory.id,
            "instance_id": trajectory.task_id,
            "repo": repo,
            "base_commit": commit,
            "agent": trajectory.policy.spec,
            "model": trajectory.policy.version,
            "path": stretch.path,
            "part": stretch.part,
            "messages": [chat_message(message) for message in messages_of(stretch.steps)],
            "tools": [chat_tool(tool) for tool in trajectory.tools],
            "exit_status": trajectory.stop,
            "resolved": trajectory.report.verdict is Verdict.RESOLVED if scored and trajectory.report else None,
            "reward": trajectory.reward.value if trajectory.reward else None,
            "seconds": trajectory.timing.total_seconds,
            "model_patch": trajectory.final_patch,
        }
        for stretch in stretches
    ]


def read_back(rows: Sequence[Row], intake: Intake) -> Iterator[Trajectory]:
    """See ``Writer.read_back``."""
    for row in rows:
        found = reader.trajectory_of(row, "", "", intake)
        if found is not None:
            yield found


def chat_message(message: Message) -> dict[str, JsonValue]:
    """A message as OpenAI's interfaces have it, without what it does not hold."""
    found: dict[str, JsonValue] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        found["reasoning_content"] = message.reasoning
    if message.tool_calls:
        found["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        found["tool_call_id"] = message.tool_call_id
    return found


def chat_tool(tool: ToolSpec) -> dict[str, JsonValue]:
    """A tool as OpenAI's interfaces have it."""
    function: dict[str, JsonValue] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return {"type": "function", "function": function}
