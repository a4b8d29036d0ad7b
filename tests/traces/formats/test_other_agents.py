"""Logs of Cline, Cursor, Copilot, OpenCode and Aider."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.records import Trajectory
from patchgym.store import RunDirectory
from patchgym.traces.formats import READERS
from patchgym.traces.importing import import_logs
from patchgym.traces.intake import Intake
from tests.records_for_tests import make_manifest
from tests.shared_data import shared_data
from tests.traces.trajectories_for_tests import JSON

BLOCKS: list[Any] = [
    {"type": "thinking", "thinking": "Hm."},
    {"type": "text", "text": "I look."},
    {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}},
]
CLINE: dict[str, Any] = {
    "agent": "lead",
    "sessionId": "s",
    "system_prompt": "You mend.",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "It fails."}], "ts": 1783376868634},
        {
            "role": "assistant",
            "content": BLOCKS,
            "ts": 1783376873493,
            "modelInfo": {"id": "m"},
            "metrics": {"inputTokens": 5, "outputTokens": 2, "cacheReadTokens": 1},
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a.py", "is_error": True}],
        },
    ],
}
AIDER = """
# aider chat started at 2024-05-06 07:08:09

> Aider v0.35.0
> Models: gpt-4 with diff edit format

#### It fails.
#### Mend it.

I edit:

```
code
```

> Applied edit to a.py

# aider chat started at 2024-05-06 08:00:00

#### Thanks.
"""


def read(name: str, path: Path, tmp_path: Path) -> tuple[list[Trajectory], dict[str, int]]:
    """What a log holds, and what of it is broken."""
    intake = Intake(ObjectStore(tmp_path / "objects"))
    return list(READERS[name].read(path, intake)), dict(intake.broken)


def test_cline_tells_thoughts_usage_and_errors(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps(CLINE))
    ((found,), broken) = read("cline", tmp_path / "s.json", tmp_path)
    (step,) = found.steps
    assert (step.message.content, step.message.reasoning, step.policy_version) == ("I look.", "Hm.", "m")
    assert step.usage is not None
    assert (step.usage.prompt_tokens, step.usage.sampled_tokens, step.usage.cached_tokens) == (5, 2, 1)
    assert step.observation is not None
    assert (step.observation.shown, step.observation.ok, step.observation.exit_code) == ("a.py", False, None)
    assert [message.role for message in step.prompt] == ["system", "user"]
    assert step.started_at is not None
    assert (step.started_at.year, broken) == (2026, {})


def test_aider_sessions_are_told_apart_by_voice(tmp_path: Path) -> None:
    (tmp_path / "h.md").write_text(AIDER)
    ((found,), _) = read("aider", tmp_path / "h.md", tmp_path)
    (step,) = found.steps
    assert [message.content for message in step.prompt] == ["It fails.\nMend it."]
    assert step.message.content == "I edit:\n\n```\ncode\n```"
    assert (step.action, step.observation) == (None, None)
    assert found.origin is not None
    assert (found.origin.agent, found.policy.version) == ("aider 0.35.0", "gpt-4")
    assert found.timing.started_at is not None
    assert found.timing.started_at.isoformat() == "2024-05-06T07:08:09+00:00"


def test_a_name_in_an_opencode_message_is_no_path(tmp_path: Path) -> None:
    root = tmp_path / "storage"
    for folder in ("session/p", "message/s", "part/m", "secret"):
        (root / folder).mkdir(parents=True)
    (root / "secret" / "x.json").write_text('{"type": "text", "text": "secret"}')
    (root / "session" / "p" / "s.json").write_text('{"id": "s"}')
    (root / "message" / "s" / "1.json").write_text('{"id": "../secret", "role": "assistant"}')
    (root / "message" / "s" / "2.json").write_text('{"id": "m", "role": "assistant", "time": {"created": 5}}')
    ((found,), _) = read("opencode", root, tmp_path)
    assert [step.message.content for step in found.steps] == ["", ""]


LINES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["session.start", "user.message", "assistant.message", "tool.execution_complete"]),
            "data": st.dictionaries(
                st.sampled_from(["content", "toolRequests", "toolCallId", "result", "context", "success"]), JSON
            ),
            "role": st.sampled_from(["user", "assistant"]) | JSON,
            "message": st.dictionaries(st.just("content"), st.lists(st.sampled_from(BLOCKS) | JSON) | JSON) | JSON,
            "timestamp": JSON,
        },
    ),
    max_size=4,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.parametrize("name", ["cursor", "copilot", "aider"])
@given(found=LINES)
def test_lines_of_any_kind_break_nothing(
    name: str, found: list[dict[str, JsonValue]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    (folder / "log").write_text("".join(f"{json.dumps(line)}\n" for line in found))
    for trajectory in read(name, folder / "log", folder)[0]:
        assert Trajectory.from_line(trajectory.to_line()) == trajectory


MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant"]) | JSON},
        optional={"content": st.lists(st.sampled_from(BLOCKS) | JSON) | JSON, "metrics": JSON, "modelInfo": JSON},
    )
    | JSON,
    max_size=3,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(messages=MESSAGES | JSON)
def test_cline_messages_of_any_kind_break_nothing(
    messages: JsonValue, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("cline")
    (folder / "log").write_text(json.dumps({**CLINE, "messages": messages}))
    for trajectory in read("cline", folder / "log", folder)[0]:
        assert Trajectory.from_line(trajectory.to_line()) == trajectory


@pytest.mark.parametrize(
    ("file", "format_name", "trajectories", "steps"),
    [
        ("aider_chat-history.md", "aider", 30, 142),
        ("cline_session.messages.json", "cline", 1, 16),
        ("copilot_cli_small_events.jsonl", "copilot", 1, 5),
        ("cursor_agent_test-session.jsonl", "cursor", 1, 4),
        ("opencode_storage_v2", "opencode", 2, 3),
    ],
)
def test_real_logs_are_recognised_and_read(
    tmp_path: Path, file: str, format_name: str, trajectories: int, steps: int
) -> None:
    run = RunDirectory.open_for_writing(tmp_path / "run", make_manifest())
    (done,) = import_logs([shared_data("agent-logs/other") / file], "auto", run)
    run.close()
    assert (done.format, done.trajectories, done.steps, done.broken) == (format_name, trajectories, steps, {})
