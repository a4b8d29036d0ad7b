"""What the tests of sandboxes share. Where this machine cannot make one they are skipped, with its reason."""

import venv
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from patchgym.content import ObjectStore
from patchgym.errors import PrerequisiteError
from patchgym.sandbox import NamespaceSandboxes, check_namespace
from patchgym.sandbox.docker import DockerSandboxes
from patchgym.sandbox.docker.own import own_engine
from tests.sandbox.box import Box, Boxes, Factory
from tests.sandbox.installed import install_docker

FILES = {
    "README.md": b"hello\n",
    "package/__init__.py": b"",
    "package/core.py": b"def answer():\n    return 41\n",
    "package/data/table.bin": bytes(range(256)),
    "package/data/windows.txt": b"one\r\ntwo\r\n",
}


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment of the interpreter that runs the tests."""
    path = tmp_path_factory.mktemp("environments") / "plain"
    venv.create(path, symlinks=True)
    return path


KINDS = ["namespace", pytest.param("docker", marks=pytest.mark.xdist_group("docker"))]


@pytest.fixture(scope="session")
def engine() -> Iterator[str]:
    """The address of a Docker engine of our own."""
    with ExitStack() as stack:
        try:
            install_docker()
            host = stack.enter_context(own_engine())
        except PrerequisiteError as error:
            pytest.skip(f"NO DOCKER HERE: {error}")
        yield host


@pytest.fixture(scope="session", params=KINDS)
def factory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Factory]:
    """The factory of all tests of a kind, with a cache, a store and scratch folders of its own."""
    folder = tmp_path_factory.mktemp("sandboxes")
    objects, cache, scratch = ObjectStore(folder / "objects"), folder / "cache", folder / "scratch"
    made: Factory
    if request.param == "docker":
        made = DockerSandboxes(objects, cache=cache, scratch=scratch, host=request.getfixturevalue("engine"))
    else:
        try:
            check_namespace(scratch)
        except PrerequisiteError as error:
            pytest.skip(f"NO SANDBOX HERE: {error}")
        made = NamespaceSandboxes(objects, cache=cache, scratch=scratch)
    yield made
    made.close()


@pytest.fixture
def boxes(factory: Factory, environment: Path) -> Iterator[Boxes]:
    """Sandboxes that are closed after the test."""
    made = Boxes(factory, environment)
    yield made
    made.close()


@pytest.fixture
def tree(boxes: Boxes, tmp_path: Path) -> str:
    """A small tree: text, binary, CRLF and an empty file."""
    (tmp_path / "tree").mkdir()
    return boxes.tree(FILES, tmp_path / "tree")


@pytest.fixture
def box(boxes: Boxes, tree: str) -> Box:
    """A sandbox of that tree."""
    return boxes.open(tree)
