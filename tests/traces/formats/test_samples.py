"""Real logs, of which every one must import. They lie beside the checkout, not in it."""

from pathlib import Path

import pytest

from tests.shared_data import shared_data
from tests.traces.imports_for_tests import imported, recognised

# File: trajectories, steps, and what is broken in the file itself.
SAMPLES: dict[str, tuple[int, int, dict[str, int]]] = {
    "claude_code/ccl_edge_cases.jsonl": (
        2,
        4,
        {"message_without_content": 1, "message_that_is_no_object": 1, "no_object": 3, "line_of_no_kind": 1},
    ),
    "claude_code/ccl_representative_messages.jsonl": (1, 5, {}),
    "claude_code/entire_04_task_error.jsonl": (1, 11, {}),
    "claude_code/entire_8e_interrupt_progress.jsonl": (1, 35, {}),
    "claude_code/entire_a6_compaction.jsonl": (1, 12, {}),
    "claude_code/vscode_b3a7bd3c-5a10-4e7b-8ff0-7fc0cd6d1093.jsonl": (5, 13, {}),
    "codex_rollout/agentsessions_codex_050_legacy.jsonl": (1, 0, {}),
    "codex_rollout/agentsessions_codex_052_raw.jsonl": (1, 0, {}),
    "codex_rollout/agentsessions_codex_053_rate_limit.jsonl": (1, 0, {}),
    "codex_rollout/agentsessions_small.jsonl": (1, 9, {}),
    "codex_rollout/rollout-2025-11-17T15-30-28-019a93b9-f380-7600-98ff-940e6b99603c.jsonl": (1, 37, {}),
    "gemini_cli/agentsessions_jsonl_v040.jsonl": (1, 2, {}),
    "gemini_cli/agentsview_system_messages.json": (1, 0, {}),
    "gemini_cli/agentsview_thinking_only.json": (1, 1, {}),
    "gemini_cli/agentsview_tool_calls.json": (1, 1, {}),
    "gemini_cli/entire_ab_session.json": (1, 11, {}),
    "inspect/docent_intercode_ctf_a.eval": (5, 34, {"missing_sample": 10}),
    "inspect/log_formats.eval": (1, 1, {}),
    "inspect/log_formats.json": (1, 1, {}),
    "inspect/log_streaming.eval": (4, 4, {}),
    "inspect/log_tool_call_error.json": (1, 0, {}),
    "inspect/re-bench_g3V7.eval": (8, 8, {}),
    "inspect/shutdown_error_started.eval": (0, 0, {"no_samples": 1}),
    "mini_swe_agent/github_issue_messages_only.traj.json": (1, 10, {}),
    "mini_swe_agent/local_messages_only.traj.json": (1, 2, {}),
    "mini_swe_agent/v1_hello-world.traj.json": (1, 3, {}),
    "mini_swe_agent/v2_InternalServerError_seq_pvlib__pvlib-python-1854.traj.json": (1, 0, {}),
    "mini_swe_agent/v2_Submitted_seq_sqlfluff__sqlfluff-2419.traj.json": (1, 41, {}),
    "mini_swe_agent/v2_Timeout_seq_pvlib__pvlib-python-1154.traj.json": (1, 0, {}),
    "openhands/v0_resolver_output.jsonl": (2, 26, {}),
    "openhands/v0_runtime_trajs_basic.json": (1, 2, {}),
    "openhands/v0_runtime_trajs_wrong_initial_state.json": (1, 4, {}),
    "openhands/v0_session_63b43159": (1, 3, {}),
    "openhands/v1_conv_40c95fc3": (1, 13, {}),
    "swe_agent/ctf_forensics_flash.traj": (1, 4, {}),
    "swe_agent/function_calling_simple.traj": (1, 5, {}),
    "swe_agent/marshmallow-1867_function_calling.traj": (1, 11, {}),
    "swe_agent/pydicom__pydicom-1458.traj": (1, 12, {}),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_is_told_and_read_whole(name: str) -> None:
    path = shared_data("agent-logs") / name
    if not path.is_dir():  # rows of chat look like much else, and are asked last
        first, *others = recognised(path)
        assert first == Path(name).parts[0].removesuffix("_rollout")
        assert set(others) <= {"chat"}
    trajectories, (done,) = imported(path)
    assert done.format == Path(name).parts[0].removesuffix("_rollout")
    found = (len(trajectories), sum(len(one.steps) for one in trajectories), done.broken)
    assert found == SAMPLES[name]


def test_no_sample_of_these_formats_was_forgotten() -> None:
    root = shared_data("agent-logs")
    there = {
        f"{kind}/{one.name}" for kind in {Path(name).parts[0] for name in SAMPLES} for one in (root / kind).iterdir()
    }
    assert there - set(SAMPLES) == {"claude_code/vscode_b3a7bd3c-5a10-4e7b-8ff0-7fc0cd6d1093"}  # read with its session
