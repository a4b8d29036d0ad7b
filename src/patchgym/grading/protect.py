"""Which paths a patch may not change: what decides how tests are found, configured and run, and what they read."""

import re
import sys
from collections.abc import Collection, Iterable
from pathlib import PurePosixPath

from patchgym.grading.layers import ALL_LAYERS, Layer
from patchgym.records import Environment, Tests

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
_HARNESS_SUFFIXES = (".pth", ".pyc", ".pyo", ".egg-link", ".so", ".pyd", ".dylib", ".dll", ".egg")
_METADATA_SUFFIXES = (".dist-info", ".egg-info")
_TEST_FOLDERS = frozenset({"test", "tests", "_tests"})
_DATA_FOLDERS = frozenset({"__snapshots__", "snapshots", "fixtures", "testdata", "test_data", "cassettes", "golden"})
_MACHINERY = frozenset({"pytest", "_pytest", "pluggy", "iniconfig", "packaging", "py", "coverage"})
_LOCKED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)\s*==", re.MULTILINE)


def is_protected(path: str, tests: Tests) -> bool:
    """Whether grading ignores what a patch does to ``path``: a test file of the task, pytest's or Python's start-up
    configuration, compiled code, or package metadata (which could name a plug-in)."""
    return path in tests.visible_files or path in tests.hidden_files or _is_harness(path)


def is_cache(path: str, there: Collection[str]) -> bool:
    """Whether ``path`` is compiled code whose source is in the tree as well: it could stand in for the source."""
    return "__pycache__" in path.split("/") or (path.endswith((".pyc", ".pyo")) and path[:-1] in there)


class Guarded:
    """What a patch to one task may not touch. ``base`` are the paths of its workspace, ``solved`` those that its own
    solution changes: test data among them may be changed. ``layers`` says what is held at all."""

    def __init__(
        self,
        tests: Tests,
        environment: Environment,
        base: Collection[str],
        solved: Iterable[str],
        layers: frozenset[Layer] = ALL_LAYERS,
    ) -> None:
        self._files = frozenset({*tests.visible_files, *tests.hidden_files}) if Layer.TESTS in layers else frozenset()
        self._harness = Layer.HARNESS in layers
        self._solved = frozenset(solved)
        self._folders = _folders_of({*tests.visible_files, *tests.hidden_files})
        self._modules = {_module_at(path, root) for path in base for root in environment.pythonpath}
        self._roots = {_clean(root) for root in environment.pythonpath} | {_parent(path) for path in self._files}
        self._foreign = _foreign(environment)
        self._base = frozenset(path for path in base if self.decides(path))
        self._above = frozenset(str(up) for path in (*self._base, *self._files) for up in PurePosixPath(path).parents)

    def refuses(self, path: str) -> bool:
        """Whether what a patch does to ``path`` is left out: it decides, stands where a folder or below where a file
        that decides has to be, or takes the place of a module that the tests import from elsewhere."""
        if self.decides(path) or path in self._above:
            return True
        ups = [str(up) for up in PurePosixPath(path).parents]
        return any(up in self._files or up in self._base for up in ups) or (self._harness and self._shadows(path))

    def decides(self, path: str) -> bool:
        """Whether ``path`` belongs to the tests or to what runs them."""
        if path in self._files:
            return True
        return self._harness and (_is_harness(path) or self._is_data(path))

    def _is_data(self, path: str) -> bool:
        return path not in self._solved and any(path.startswith(folder) for folder in self._folders)

    def _shadows(self, path: str) -> bool:
        """Whether ``path`` adds a module, at a place that imports start from, which Python, pytest or a locked package
        has by that name."""
        found = {_module_at(path, root) for root in self._roots} - {None}
        return any(name in self._foreign and name not in self._modules for name in found)


def _is_harness(path: str) -> bool:
    parts = path.split("/")
    return (
        parts[-1] in _HARNESS_NAMES
        or path.endswith(_HARNESS_SUFFIXES)
        or any(part.endswith(_METADATA_SUFFIXES) or part == "__pycache__" for part in parts)
    )


def _folders_of(files: Iterable[str]) -> tuple[str, ...]:
    """The folders that belong to the tests, each with its slash: the topmost one around a test file that is called like
    a folder of tests, and those for snapshots and fixtures beside a test file."""
    found: set[str] = set()
    for path in files:
        parts = PurePosixPath(path).parts[:-1]
        tests = next((at for at, part in enumerate(parts) if part in _TEST_FOLDERS), None)
        if tests is not None:
            found.add("/".join(parts[: tests + 1]) + "/")
        found.update("/".join((*parts, name)) + "/" for name in _DATA_FOLDERS)
    return tuple(sorted(found))


def _foreign(environment: Environment) -> frozenset[str]:
    """The top-level modules that are not the task's own: Python's, pytest's, those of the locked packages."""
    own = environment.distribution.name if environment.distribution is not None else ""
    locked = {name.lower().replace("-", "_").replace(".", "_") for name in _LOCKED.findall(environment.lock)}
    return sys.stdlib_module_names | _MACHINERY | (locked - {own.lower().replace("-", "_").replace(".", "_")})


def _module_at(path: str, root: str) -> str | None:
    """The top-level module that ``path`` is part of for imports from the folder ``root``; None where it is of none."""
    root = _clean(root)
    if root and not path.startswith(root + "/"):
        return None
    head, slash, _ = path[len(root) + 1 if root else 0 :].partition("/")
    if slash or "." not in head:  # without either, a link to a folder
        return head
    return head.split(".", 1)[0] if head.endswith(".py") else None


def _clean(root: str) -> str:
    return str(PurePosixPath(root)) if root not in ("", ".") else ""


def _parent(path: str) -> str:
    return _clean(str(PurePosixPath(path).parent))
