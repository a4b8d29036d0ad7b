"""What the tests of policies share. Without the train extra those that need it are skipped by name, never missing."""

import importlib.util
from pathlib import Path

import pytest

_NEEDS_TRAIN = {
    "test_chat.py",
    "test_draw.py",
    "test_engine.py",
    "test_local.py",
    "test_models.py",
    "test_smollm2.py",
    "test_server.py",
    "test_server_handshake.py",
    "test_server_versions.py",
    "test_tokens.py",
    "test_vllm_recorded.py",
}


class _SkippedModule(pytest.Module):
    def collect(self) -> list[pytest.Item | pytest.Collector]:
        pytest.skip("needs the train extra: pip install 'patchgym[train]'", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    missing = any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "peft"))
    if missing and module_path.name in _NEEDS_TRAIN:
        return _SkippedModule.from_parent(parent, path=module_path)
    return None
