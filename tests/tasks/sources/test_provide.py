"""Environments for real code bases, tried in the real sandbox: healthy ones, mended ones, and every way to fail."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.content import ObjectStore
from patchgym.content.downloads import IndexFile
from patchgym.errors import BuildFailure, EnvironmentBuildError
from patchgym.records import Environment
from patchgym.sandbox.environments import build_environment
from patchgym.tasks.sources.git import GitSource
from patchgym.tasks.sources.project import Needs, Revision
from patchgym.tasks.sources.provide import Provided, Provider, allows, day_of
from patchgym.tasks.sources.releases import ReleaseSource
from patchgym.testrun import Built, TestRun, run_tests, sandbox_spec
from tests.tasks.sources.codebase import FLAT, MENDED, NEW_TEST, Repo, make_sdist, tree_with
from tests.workshop import here, sandboxes

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
HELPER = {"helper.py": "X = 1\n"}


def plain_lock(requirements: tuple[str, ...], python: str, *, exclude_newer: str | None = None) -> str:
    """A lock that only says what was asked for: the tests run in this interpreter's own environment."""
    if "nothing-like-it" in requirements:
        raise EnvironmentBuildError("No solution", kind=BuildFailure.RESOLVER)
    return "\n".join(requirements)


class Workbench:
    """Runs suites in real sandboxes. Where a lock has ``helper``, that package's module lies in the tree's root, as if
    it were installed."""

    def __init__(self, objects: ObjectStore, folder: Path, build: Callable[[Environment], Path] = here) -> None:
        self.objects, self._folder, self._build = objects, folder, build
        self.locks: list[str] = []

    def provide(self, revision: Revision, **settings: float) -> Provided:
        """Find an environment for a revision's own tree."""

        async def work() -> Provided:
            with sandboxes(self.objects, self._folder) as factory:

                async def suite(tree: str, environment: Environment, *, timeout_s: float) -> TestRun:
                    self.locks.append(environment.lock)
                    if "helper" in environment.lock.split():
                        tree = tree_with_more(self.objects, tree, HELPER)
                    built = await asyncio.to_thread(self._build, environment)
                    sandbox = await factory.create(sandbox_spec(tree, environment, Built(built)))
                    try:
                        return await run_tests(sandbox, environment, (), timeout_s=timeout_s)
                    finally:
                        await sandbox.close()

                seconds = settings.get("suite_seconds", 60.0)
                provider = Provider(suite, self.objects, lock=plain_lock, suite_seconds=seconds)
                return await provider.provide(revision, revision.tree)

        return asyncio.run(work())


def tree_with_more(objects: ObjectStore, tree: str, texts: Mapping[str, str]) -> str:
    """The tree with further files."""
    return objects.update_tree(tree, dict(objects.entries(tree_with(objects, texts))))


def revision_of(objects: ObjectStore, folder: Path, texts: Mapping[str, str]) -> Revision:
    """The code base as it comes out of an sdist."""
    path = folder / "sdist" / "pkg-1.0.tar.gz"
    path.parent.mkdir()
    path.write_bytes(make_sdist("pkg", "1.0", texts))
    file = IndexFile(version="1.0", filename=path.name, url=path.as_uri())
    return ReleaseSource("pkg", listing=lambda name: (file,), fetch=lambda file: path).load(file, objects)


@pytest.fixture
def bench(objects: ObjectStore, tmp_path: Path) -> Workbench:
    return Workbench(objects, tmp_path)


def test_a_healthy_code_base_gets_its_environment(bench: Workbench, tmp_path: Path) -> None:
    revision = revision_of(bench.objects, tmp_path, FLAT)
    found = bench.provide(revision)
    assert found.revision == replace(
        revision,
        environment=revision.environment.model_copy(update={"python": PYTHON, "lock": "pytest"}),
        needs=None,
    )
    assert len(found.run.outcomes) == 1
    assert (found.added, len(bench.locks)) == ((), 1)


FAILING: dict[str, tuple[BuildFailure, dict[str, str]]] = {
    "no tests": (BuildFailure.NO_TESTS, {"tests/test_numbers.py": "x = 1\n"}),
    "failing": (BuildFailure.SUITE_FAILS, {"tests/test_numbers.py": "def test_a():\n    assert 1 == 2\n"}),
    "half and less": (
        BuildFailure.SUITE_FAILS,
        {"tests/test_numbers.py": "def test_a():\n    assert 0\ndef test_b():\n    pass\ndef test_c():\n    1 / 0\n"},
    ),
    "dying": (BuildFailure.SUITE_FAILS, {"tests/test_numbers.py": "import os\n\n\ndef test_a():\n    os._exit(0)\n"}),
    "network": (
        BuildFailure.NEEDS_NETWORK,
        {
            "tests/test_numbers.py": "import urllib.request\n\n\ndef test_a():\n    urllib.request.urlopen('http://a.example')\n"
        },
    ),
    "module": (BuildFailure.MISSING_MODULE, {"tests/test_numbers.py": "import nothing_like_it\n"}),
    "own module": (BuildFailure.MISSING_MODULE, {"tests/test_numbers.py": "import pkg.nothing\n"}),
    "compiled": (
        BuildFailure.COMPILER,
        {"pkg/__init__.py": "from pkg._fast import f\n", "pkg/_fast.c": "int f;\n", "setup.py": "setup(name='pkg')\n"},
    ),
    "library": (
        BuildFailure.MISSING_SYSTEM_LIBRARY,
        {"pkg/numbers.py": "import ctypes\n\nLIB = ctypes.CDLL('libno-such-thing.so.9')\n"},
    ),
    "another Python": (BuildFailure.PYTHON_VERSION, {"pkg/numbers.py": "print 'x'\n"}),
    "another library": (BuildFailure.PYTHON_VERSION, {"pkg/numbers.py": "import ConfigParser\n"}),
    "conftest": (BuildFailure.MISSING_MODULE, {"tests/conftest.py": "import nothing_like_it\n"}),
}


@pytest.mark.parametrize("name", FAILING)
def test_each_failure_has_its_kind(bench: Workbench, tmp_path: Path, name: str) -> None:
    kind, texts = FAILING[name]
    with pytest.raises(EnvironmentBuildError) as caught:
        bench.provide(revision_of(bench.objects, tmp_path, {**FLAT, **texts}))
    assert caught.value.kind is kind
    assert "pkg-1.0" in caught.value.what


def test_a_suite_that_hangs_is_ended(bench: Workbench, tmp_path: Path) -> None:
    texts = {**FLAT, "tests/test_numbers.py": "def test_a():\n    while True:\n        pass\n"}
    with pytest.raises(EnvironmentBuildError) as caught:
        bench.provide(revision_of(bench.objects, tmp_path, texts), suite_seconds=5.0)
    assert caught.value.kind is BuildFailure.SUITE_HANGS


@pytest.mark.parametrize("path", ["tests/test_numbers.py", "tests/conftest.py"])
def test_a_module_that_is_missing_is_added(bench: Workbench, tmp_path: Path, path: str) -> None:
    texts = {**FLAT, path: FLAT.get(path, "") + "\nimport helper\n"}
    found = bench.provide(revision_of(bench.objects, tmp_path, texts))
    assert found.added == ("helper",)
    assert bench.locks == ["pytest", "pytest\nhelper"]
    assert found.revision.environment.lock == "pytest\nhelper"


def test_a_module_that_cannot_be_had_does_not_keep_another_away(bench: Workbench, tmp_path: Path) -> None:
    texts = {**FLAT, "tests/test_b.py": "import nothing_like_it\n", "tests/test_c.py": "import helper\n"}
    found = bench.provide(revision_of(bench.objects, tmp_path, texts))
    assert found.added == ("helper",)


def test_skipped_tests_count_neither_way(bench: Workbench, tmp_path: Path) -> None:
    text = "import pytest\n\n\n@pytest.mark.parametrize('n', range(9))\ndef test_s(n):\n    pytest.skip('so')\n"
    assert bench.provide(revision_of(bench.objects, tmp_path, {**FLAT, "tests/test_s.py": text})).run.complete


def test_where_the_tests_requirements_have_no_solution_the_code_alone_does(bench: Workbench, tmp_path: Path) -> None:
    texts = {**FLAT, "requirements-test.txt": "nothing-like-it\n"}
    found = bench.provide(revision_of(bench.objects, tmp_path, texts))
    assert found.revision.environment.lock == "pytest"


def test_where_nothing_has_a_solution_the_first_reason_is_told(bench: Workbench, tmp_path: Path) -> None:
    texts = {**FLAT, "pyproject.toml": '[project]\nname = "pkg"\ndependencies = ["nothing-like-it"]\n'}
    with pytest.raises(EnvironmentBuildError) as caught:
        bench.provide(revision_of(bench.objects, tmp_path, texts))
    assert caught.value.kind is BuildFailure.RESOLVER
    assert not bench.locks


def test_requirements_that_nobody_can_be_asked_for_are_told(bench: Workbench, tmp_path: Path) -> None:
    asks = '[project]\nname = "pkg"\ndependencies = ["nothing-like-it", "own @ file:///own"]\n'
    revision = revision_of(bench.objects, tmp_path, {**FLAT, "pyproject.toml": asks})
    for _ in range(2):
        with pytest.raises(EnvironmentBuildError) as caught:
            bench.provide(revision)
        assert caught.value.why.count("left out, being no names with versions: own @ file:///own.") == 1


def test_a_python_that_is_not_here_is_told(bench: Workbench, tmp_path: Path) -> None:
    revision = revision_of(bench.objects, tmp_path, FLAT)
    with pytest.raises(EnvironmentBuildError) as caught:
        bench.provide(replace(revision, needs=Needs(requires_python="<3")))
    assert caught.value.kind is BuildFailure.PYTHON_VERSION


def test_tests_run_in_a_fixed_world_with_a_loopback(bench: Workbench, tmp_path: Path) -> None:
    text = """
import os, socket, sys, time

def test_world():
    fixed = {name: os.environ.get(name) for name in ("TZ", "LC_ALL", "PYTHONHASHSEED")}
    assert fixed == {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"}
    assert time.tzname[0] == "UTC"
    assert not sys.flags.hash_randomization

def test_loopback():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()
    assert socket.gethostbyname("localhost") == "127.0.0.1"

def test_no_more_network():
    import pytest
    with pytest.raises(OSError):
        socket.create_connection(("192.0.2.1", 9), timeout=5)
"""
    found = bench.provide(revision_of(bench.objects, tmp_path, {**FLAT, "tests/test_world.py": text}))
    assert {str(outcome) for outcome in found.run.outcomes.values()} == {"passed"}


@pytest.mark.parametrize(
    ("wanted", "python", "allowed"),
    [
        (None, "3.11", True),
        (">=3.8", "3.11", True),
        (">=3.12", "3.11", False),
        (">=3.11.4", "3.11", True),
        (">=2.7, !=3.0.*, !=3.1.*", "3.11", True),
        ("<3.11", "3.11", False),
        ("garbage", "3.11", True),
    ],
)
def test_which_python_a_specifier_allows(wanted: str | None, python: str, allowed: bool) -> None:
    assert allows(wanted, python) is allowed


def test_the_day_is_the_codes_but_never_before_the_python_was_ready() -> None:
    assert day_of(datetime(2025, 3, 1, 23, tzinfo=UTC), "3.11") == "2025-03-01"
    assert day_of(datetime(2015, 3, 1, tzinfo=UTC), "3.11") == "2023-10-24"
    assert day_of(datetime(2025, 3, 1, tzinfo=UTC), "3.99") is None
    assert day_of(None, "3.11") is None


@given(text=st.text(max_size=30))
def test_any_specifier_is_understood_or_allows_all(text: str) -> None:
    assert allows(text, "3.11") in (True, False)


def test_a_mined_fix_is_seen_by_its_tests(bench: Workbench, tmp_path: Path) -> None:
    repo = Repo(tmp_path / "work" / "project")
    repo.commit("Begin", dict(FLAT))
    repo.commit("Whole halves", {"pkg/numbers.py": MENDED, "tests/test_numbers.py": NEW_TEST})
    (mined,) = GitSource(str(repo.folder), cache=tmp_path / "cache").candidates(bench.objects)
    outcomes = []
    for tree in (mined.healthy, mined.broken):
        found = bench.provide(replace(mined.revision, tree=tree))
        outcomes.append({test.rpartition(":")[2]: str(outcome) for test, outcome in found.run.outcomes.items()})
    assert outcomes[0] == {"test_double": "passed", "test_half": "passed"}
    assert outcomes[1] == {"test_double": "passed", "test_half": "failed"}


@pytest.mark.slow
@pytest.mark.network
def test_a_real_package_is_mended_and_locked_as_of_its_day(objects: ObjectStore, tmp_path: Path) -> None:
    """funcy's tests want ``whatever``, which it declares nowhere."""
    revision = ReleaseSource("funcy==2.1").revision(objects)

    async def work() -> Provided:
        with sandboxes(objects, tmp_path) as factory:

            async def suite(tree: str, environment: Environment, *, timeout_s: float) -> TestRun:
                built = await asyncio.to_thread(build_environment, environment)
                sandbox = await factory.create(sandbox_spec(tree, environment, Built(built)))
                try:
                    return await run_tests(sandbox, environment, (), timeout_s=timeout_s)
                finally:
                    await sandbox.close()

            return await Provider(suite, objects).provide(revision, revision.tree)

    found = asyncio.run(work())
    assert found.added == ("whatever",)
    assert found.as_of == day_of(revision.created_at, PYTHON)
    assert "--hash=sha256:" in found.revision.environment.lock
    assert len(found.run.outcomes) > 200
