"""From a broken tree to a task that is still to be proved."""

import asyncio

import pytest

from patchgym.content import ObjectStore
from patchgym.records import Environment, Limits, Task
from patchgym.tasks.bugs.bug import Bug
from patchgym.tasks.bugs.difficulty import Facts
from patchgym.tasks.proof.bench import Bench
from patchgym.tasks.proof.draft import Rules, draft_task
from patchgym.tasks.proof.healthy import Healthy
from patchgym.tasks.proof.prove import prove
from patchgym.tasks.sources.planted import planted_candidate
from patchgym.tasks.sources.project import Project, Revision
from tests.workshop import here, sandboxes, tree_of

SOURCE = "def half(x):\n    return x // 2\n"
BROKEN = "def half(x):\n    return x / 2\n"
BASE = """\
import calc


class TestHalf:
    def test_five(self):
        assert calc.half(5) == 2

    def test_seven(self):
        assert calc.half(7) == 3

    def test_nine(self):
        assert calc.half(9) == 4

    def test_four(self):
        assert calc.half(4) == 2
"""
INHERITING = "import calc\nfrom test_base import TestHalf as Base\n\n\nclass TestMore(Base):\n    pass\n"
FILES = {"calc.py": SOURCE, "tests/test_base.py": BASE, "tests/test_more.py": INHERITING}
PASSING = frozenset(
    f"tests/{place}::test_{number}"
    for place in ("test_base.py::TestHalf", "test_more.py::TestMore")
    for number in ("four", "five", "seven", "nine")
)
FAILING = {test for test in PASSING if not test.endswith("four")}


@pytest.fixture(scope="module")
def drafted(tmp_path_factory: pytest.TempPathFactory) -> Task:
    """The draft, proved."""
    folder = tmp_path_factory.mktemp("draft")
    objects = ObjectStore(folder / "objects")
    environment = Environment(python="3.11", pythonpath=("", "tests"))
    project = Project(license="MIT", sources=("calc.py",), tests=("tests/",))
    revision = Revision("calc", "1.0", project, tree_of(objects, FILES), environment)
    bug = Bug("mutation", {"calc.py": BROKEN}, ("arithmetic",), ("calc.py:half",), {"calc.py": (2,)}, "x", Facts(1, 2))
    rules = Rules(40, 30.0, Limits(), 0)

    async def made() -> Task:
        with sandboxes(objects, folder) as factory:
            bench = Bench(factory, objects, here, concurrency=2)
            healthy = Healthy(passed=PASSING, flaky={}, failing=0, coverage=None, seconds=0.3)
            draft = await draft_task(planted_candidate(revision, objects, bug), healthy, bench, rules, "train")
            return await prove(draft, bench, 2, None)

    return asyncio.run(made())


def test_what_goes_with_a_hidden_test_is_hidden_too(drafted: Task) -> None:
    hidden = {test.rpartition("::")[2] for test in drafted.tests.hidden}
    assert len(hidden) == 1
    assert {test.rpartition("::")[2] for test in drafted.view().failing_tests}.isdisjoint(hidden)
    assert set(drafted.tests.fail_to_pass) == FAILING
    assert not any(name in drafted.instruction for name in hidden)


def test_such_a_task_proves(drafted: Task) -> None:
    assert drafted.validation is not None
    assert drafted.validation.proved
