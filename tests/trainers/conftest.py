"""What the tests of trainers share. Without the train extra they are skipped by name, never missing."""

import importlib.util
from pathlib import Path

import pytest


class _SkippedModule(pytest.Module):
    def collect(self) -> list[pytest.Item | pytest.Collector]:
        pytest.skip("needs the train extra: pip install 'patchgym[train]'", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "peft")):
        return _SkippedModule.from_parent(parent, path=module_path)
    return None


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkouts and hashes go where nobody's own are."""
    monkeypatch.setenv("PATCHGYM_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
