"""Which paths a patch may not change: what decides how tests are found, configured and run."""

from pathlib import PurePosixPath

from patchgym.records import Tests

_HARNESS_NAMES = frozenset(
    {
        "conftest.py",
        "pytest.ini",
        ".pytest.ini",
        "pytest.toml",
        ".pytest.toml",
        "tox.ini",
        "setup.cfg",
        "pyproject.toml",
        "sitecustomize.py",
        "usercustomize.py",
    }
)
_HARNESS_SUFFIXES = (".pth", ".pyc", ".pyo", ".egg-link")
_METADATA_SUFFIXES = (".dist-info", ".egg-info")


def is_protected(path: str, tests: Tests) -> bool:
    """Whether grading ignores what a patch does to ``path``: a test file of the task, pytest's or Python's start-up
    configuration, compiled code, or package metadata (which could name a plug-in)."""
    parts = PurePosixPath(path).parts
    return (
        path in tests.visible_files
        or path in tests.hidden_files
        or parts[-1] in _HARNESS_NAMES
        or path.endswith(_HARNESS_SUFFIXES)
        or any(part.endswith(_METADATA_SUFFIXES) or part == "__pycache__" for part in parts)
    )
