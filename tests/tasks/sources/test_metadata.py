"""What a code base declares, from every file in which projects do."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.content import ObjectStore
from patchgym.tasks.sources.metadata import read_metadata
from tests.tasks.sources.codebase import files_of

PKG_INFO = """\
Metadata-Version: 2.4
Name: Some.Package
Version: 1.2
License-Expression: MIT
Classifier: License :: OSI Approved :: MIT License
Requires-Python: >=3.9
Requires-Dist: attrs>=20
Requires-Dist: tomli; python_version < "3.11"
Requires-Dist: pytest>=7; extra == "test"
Requires-Dist: mock; (python_version < "3.9") and extra == "test"
"""


def test_pkg_info(objects: ObjectStore) -> None:
    found = read_metadata(files_of(objects, {"PKG-INFO": PKG_INFO}))
    assert (found.name, found.version, found.requires_python) == ("Some.Package", "1.2", ">=3.9")
    assert found.dependencies == ("attrs>=20", 'tomli; python_version < "3.11"')
    assert found.extras["test"][0] == "pytest>=7"
    assert "python_version" in found.extras["test"][1]
    assert found.licences == ("MIT", "License :: OSI Approved :: MIT License")


def test_what_setuptools_wrote_beside_the_tree(objects: ObjectStore) -> None:
    beside = {"requires.txt": "six\n\n[:python_version<'3']\nfutures\n\n[test]\npytest\n", "entry_points.txt": "[a]\n"}
    found = read_metadata(files_of(objects, {"PKG-INFO": "Name: x\nVersion: 1\n"}, beside))
    assert found.dependencies == ("six", "futures ; python_version<'3'")
    assert found.extras == {"test": ("pytest",)}
    assert found.entry_points == "[a]\n"


def test_pyproject(objects: ObjectStore) -> None:
    text = """
[project]
name = "x"
dynamic = ["version"]
requires-python = ">=3.8"
license = {text = "BSD-3-Clause"}
dependencies = ["attrs"]
scripts = {run = "x.cli:main"}
[project.optional-dependencies]
test = ["pytest"]
[dependency-groups]
base = ["six"]
dev = [{include-group = "base"}, "mock", {include-group = "dev"}]
"""
    found = read_metadata(files_of(objects, {"pyproject.toml": text}))
    assert (found.name, found.version, found.requires_python) == ("x", None, ">=3.8")
    assert (found.dependencies, found.extras["test"], found.groups["dev"]) == (("attrs",), ("pytest",), ("six", "mock"))
    assert found.licences == ("BSD-3-Clause",)
    assert found.entry_points == "[console_scripts]\nrun = x.cli:main\n\n"


def test_poetry(objects: ObjectStore) -> None:
    text = """
[tool.poetry]
name = "x"
version = "0.3"
license = "MIT"
packages = [{include = "pkg"}]
[tool.poetry.dependencies]
python = "^3.8"
requests = "^2.28"
tomli = {version = "~2.0", markers = "python_version < '3.11'"}
own = {path = "../own"}
extra = {version = "*", optional = true}
[tool.poetry.group.test.dependencies]
pytest = "*"
"""
    found = read_metadata(files_of(objects, {"pyproject.toml": text}))
    assert (found.name, found.version, found.requires_python, found.licences) == ("x", "0.3", ">=3.8", ("MIT",))
    assert found.dependencies == ("requests>=2.28", "tomli>=2.0 ; python_version < '3.11'")
    assert found.groups["test"] == ("pytest",)
    assert found.packages == ("pkg",)


def test_setup_cfg(objects: ObjectStore) -> None:
    text = """
[metadata]
name = x
version = attr: x.__version__
license = MIT
[options]
python_requires = >=3.7
install_requires =
    attrs>=20
    # a comment
    six
[options.extras_require]
testing = pytest
[options.entry_points]
console_scripts =
    run = x:main
[tool:pytest]
testpaths = a b
"""
    found = read_metadata(files_of(objects, {"setup.cfg": text}))
    assert (found.name, found.version, found.requires_python, found.licences) == ("x", None, ">=3.7", ("MIT",))
    assert (found.dependencies, found.extras) == (("attrs>=20", "six"), {"testing": ("pytest",)})
    assert found.entry_points == "[console_scripts]\nrun = x:main\n\n"
    assert found.pytest == {"testpaths": ("a", "b")}


def test_setup_py_is_read_and_never_run(objects: ObjectStore, tmp_path: Path) -> None:
    text = f"""
import setuptools
open({str(tmp_path / "ran")!r}, "w")
TESTS = ["pytest"]
setuptools.setup(name="x", version=open("v").read(), install_requires=["six"] + ["attrs"], tests_require=TESTS,
                 extras_require={{"dev": TESTS, "no": compute()}}, packages=setuptools.find_packages())
"""
    found = read_metadata(files_of(objects, {"setup.py": text}))
    assert (found.name, found.version, found.dependencies) == ("x", None, ("six", "attrs"))
    assert found.extras == {"dev": ("pytest",), "tests_require": ("pytest",)}
    assert not (tmp_path / "ran").exists()


def test_what_was_released_comes_before_what_the_files_say(objects: ObjectStore) -> None:
    files = {"PKG-INFO": PKG_INFO, "pyproject.toml": '[project]\nname = "y"\nversion = "9"\n'}
    assert read_metadata(files_of(objects, files)).version == "1.2"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(
    [
        "project",
        "tool.poetry",
        "tool.poetry.dependencies",
        "tool.poetry.group",
        "dependency-groups",
        "tool.flit.metadata",
        "tool.pytest.ini_options",
        "tool.hatch.envs",
        "tool.pdm.dev-dependencies",
        "project.scripts",
        "project.license",
        "tool.poetry.packages",
        "project.name",
        "project.dependencies",
        "project.optional-dependencies",
        "tool.setuptools",
    ]
)


def _toml(value: object) -> str:
    match value:
        case bool() | None:
            return "true" if value else "false"
        case int():
            return str(max(min(value, 2**62), -(2**62)))
        case str():
            return '"' + "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in value) + '"'
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case dict():
            return "{" + ", ".join(f"{_toml(key)} = {_toml(inner)}" for key, inner in value.items()) + "}"
    raise AssertionError(value)


@settings(max_examples=150, deadline=None)
@given(tables=st.dictionaries(KEYS, JSON, max_size=4), text=st.text(max_size=80))
def test_whatever_the_files_hold_nothing_is_raised(
    tables: dict[str, object], text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    objects = ObjectStore(tmp_path_factory.getbasetemp() / "shared")
    pyproject = "".join(f"{key} = {_toml(value)}\n" for key, value in tables.items())
    text = text.encode("utf-8", "replace").decode()
    read_metadata(files_of(objects, {"pyproject.toml": pyproject}))
    every = dict.fromkeys(["pyproject.toml", "setup.cfg", "setup.py", "PKG-INFO", "tox.ini", "pytest.ini"], text)
    read_metadata(files_of(objects, every, {"requires.txt": text}))
