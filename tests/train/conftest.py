"""What the tests of training share. Without the train extra they are skipped by name, never missing."""

import importlib.util
from pathlib import Path

import pytest

from patchgym.records import Trajectory

_NEEDS_NO_TORCH = {"test_rows.py"}


class _SkippedModule(pytest.Module):
    def collect(self) -> list[pytest.Item | pytest.Collector]:
        pytest.skip("needs the train extra: pip install 'patchgym[train]'", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    missing = any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "peft"))
    if missing and module_path.name not in _NEEDS_NO_TORCH:
        return _SkippedModule.from_parent(parent, path=module_path)
    return None


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a random two-layer Llama and a byte-level chat tokenizer."""
    from tests.train.tiny import save_tiny_model

    return save_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of the tests' own."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def pair(model_dir: Path, cache: Path) -> list[Trajectory]:
    """Two samples of one task: ``GOOD`` was rewarded, ``BAD`` was not."""
    from tests.train.tiny import BAD, GOOD, PROMPT, SEEN, graded, load, sampled_steps

    model = load(model_dir, cache)
    return [
        graded(sampled_steps(model, [(PROMPT, GOOD), (SEEN, GOOD)]), 1.0, 0),
        graded(sampled_steps(model, [(PROMPT, BAD), (SEEN, BAD)]), 0.0, 1),
    ]
