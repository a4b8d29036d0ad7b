"""The benchmarks of training run at a tiny shape, and what they say of agreement holds."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = [pytest.mark.train, pytest.mark.slow]
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(*arguments: str) -> str:
    """Standard output of a benchmark."""
    offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(BENCHMARKS / arguments[0]), *arguments[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=offline).stdout


def test_the_check_of_a_gpu_runs_at_a_tiny_shape() -> None:
    lines: list[dict[str, Any]] = [json.loads(line) for line in run("gpu_check.py", "--tiny").splitlines()]
    assert {line["part"] for line in lines} == {"agreement", "trl", "packing", "speed", "sampling"}
    assert not [line for line in lines if "failed" in line or "stopped" in line]
    exact = [line for line in lines if line.get("dtype") == "float32"]
    assert len(exact) == 2
    assert all(line["gradients_apart"] < (1e-5 if not torch.cuda.is_available() else 1e-3) for line in exact)
    assert all(line["gradients_cosine"] > 0.98 for line in lines if line["part"] == "agreement")


def test_the_comparison_of_updates_runs_without_its_peer() -> None:
    told = json.loads(run("train.py", "--shape", "tiny", "--size", "2", "--repeats", "1", "--cases", "group", "tree"))
    assert told["group"]["read_ids"] < told["group"]["rows_ids"] / 4
    assert told["tree"]["trained_tokens"] == 64 * 12
    assert "ratio" not in told["group"]


def test_the_comparison_of_sampling_runs_at_a_tiny_shape() -> None:
    small = ("--turns", "3", "--samples", "2", "--prompt", "12", "--observation", "6", "--answer", "4")
    told = json.loads(run("generate.py", "--shape", "tiny", *small))
    assert told["task"]["sampled"] == 24
    assert told["task"]["ids_that_differ"] == 12 + 2 * 2 * 6 + 24
    assert told["task"]["ids_read_again"] == 2 * (16 + 26 + 36)
    assert told["task"]["ratio"] > 0
