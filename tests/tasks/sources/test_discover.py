"""What is source, what is test and where imports start, told from a tree alone."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.content import ObjectStore
from patchgym.tasks.sources.discover import discover, looks_like_source, looks_like_test
from patchgym.tasks.sources.project import Project
from patchgym.tasks.sources.refusals import Refusal, Refused
from tests.tasks.sources.codebase import FLAT, PROJECT, files_of

CODE = "x = 1\n"
LAYOUTS: dict[str, tuple[dict[str, str], tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "flat": (FLAT, ("pkg/",), ("tests/",), ("",)),
    "src": (
        {"pyproject.toml": PROJECT, "src/pkg/a.py": CODE, "src/pkg/__init__.py": CODE, "tests/test_a.py": CODE},
        ("src/pkg/",),
        ("tests/",),
        ("src", ""),
    ),
    "src of another name": (
        {"pyproject.toml": PROJECT, "src/other/__init__.py": CODE, "test/test_a.py": CODE, "benchmarks/b.py": CODE},
        ("src/other/",),
        ("test/",),
        ("src", ""),
    ),
    "namespace": (
        {"src/space/pkg/a.py": CODE, "tests/unit/test_a.py": CODE, "tests/conftest.py": CODE},
        ("src/space/",),
        ("tests/",),
        ("src", ""),
    ),
    "one module": (
        {"pyproject.toml": PROJECT, "pkg.py": CODE, "test_pkg.py": CODE, "setup.py": CODE, "tests_helper.py": CODE},
        ("pkg.py",),
        ("test_pkg.py", "tests_helper.py"),
        ("",),
    ),
    "one module among tools": (
        {"calc.py": CODE, "noxfile.py": CODE, "conftest.py": CODE, "calc_test.py": CODE},
        ("calc.py",),
        ("calc_test.py", "conftest.py"),
        ("",),
    ),
    "tests inside the package": (
        {"pkg/__init__.py": CODE, "pkg/a.py": CODE, "pkg/tests/__init__.py": CODE, "pkg/tests/test_a.py": CODE},
        ("pkg/",),
        ("pkg/tests/",),
        ("",),
    ),
    "tests beside the modules": (
        {"pkg/__init__.py": CODE, "pkg/a.py": CODE, "pkg/test_a.py": CODE, "pkg/conftest.py": CODE},
        ("pkg/",),
        ("pkg/conftest.py", "pkg/test_a.py"),
        ("",),
    ),
    "told by testpaths": (
        {**FLAT, "tests/test_numbers.py": "", "pytest.ini": "[pytest]\ntestpaths = checks\n", "checks/test_a.py": CODE},
        ("pkg/",),
        ("checks/", "tests/"),
        ("",),
    ),
    "told by python_files": (
        {"pkg/__init__.py": CODE, "spec/check_a.py": CODE}
        | {"setup.cfg": "[tool:pytest]\npython_files = check_*.py\ntestpaths = spec\n"},
        ("pkg/",),
        ("spec/",),
        ("",),
    ),
    "told by pythonpath": (
        {"pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["lib", "."]\n'}
        | {"lib/pkg/__init__.py": CODE, "tests/test_a.py": CODE},
        ("lib/pkg/",),
        ("tests/",),
        ("lib", ""),
    ),
    "a root of its own": (
        {"python3/pkg/__init__.py": CODE, "tests/test_a.py": CODE, "setup.py": "setup(name='pkg')"},
        ("python3/pkg/",),
        ("tests/",),
        ("python3", ""),
    ),
    "examples and documents are neither": (
        {
            **FLAT,
            "examples/test_it.py": CODE,
            "docs/conf.py": CODE,
            ".github/test_ci.py": CODE,
            "tools/x/__init__.py": CODE,
        },
        ("pkg/",),
        ("tests/",),
        ("",),
    ),
    "two packages, one of the project's name": (
        {**FLAT, "helpers/__init__.py": CODE},
        ("pkg/",),
        ("tests/",),
        ("",),
    ),
    "two packages, none of the project's name": (
        {"a/__init__.py": CODE, "b/__init__.py": CODE, "tests/test_a.py": CODE},
        ("a/", "b/"),
        ("tests/",),
        ("",),
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(objects: ObjectStore, name: str) -> None:
    texts, sources, tests, pythonpath = LAYOUTS[name]
    project = discover(files_of(objects, texts)).project
    assert (project.sources, project.tests, project.pythonpath) == (sources, tests, pythonpath)


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({}, Refusal.NOT_PYTHON),
        ({"main.c": "int x;", "README": ""}, Refusal.NOT_PYTHON),
        ({".hooks/test_a.py": CODE}, Refusal.NOT_PYTHON),
        ({"pkg/__init__.py": CODE, "docs/test_a.py": CODE}, Refusal.NO_TESTS),
        ({"pkg/__init__.py": CODE, "tests/conftest.py": CODE, "tests/helper.py": CODE}, Refusal.NO_TESTS),
        ({"setup.py": CODE, "tests/test_a.py": CODE}, Refusal.NO_SOURCES),
        ({"docs/conf.py": CODE, "tests/test_a.py": CODE}, Refusal.NO_SOURCES),
    ],
)
def test_what_is_refused(objects: ObjectStore, texts: Mapping[str, str], reason: Refusal) -> None:
    with pytest.raises(Refused) as caught:
        discover(files_of(objects, texts))
    assert caught.value.reason is reason


def test_the_licence_is_named_in_the_projects_own_words(objects: ObjectStore) -> None:
    assert discover(files_of(objects, FLAT)).project.license == "MIT"
    assert discover(files_of(objects, {**FLAT, "pyproject.toml": ""})).project.license == ""


NAMES = st.sampled_from(
    ["pkg", "src", "tests", "test", "docs", "lib", "a", "testing", "test_a.py", "a.py", "x_test.py"]
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(
    lambda parts: "/".join([*(part.removesuffix(".py") for part in parts[:-1]), parts[-1].removesuffix(".py") + ".py"])
)


@settings(max_examples=200, deadline=None)
@given(paths=st.sets(PATHS, max_size=12))
def test_no_path_is_both_source_and_test(paths: set[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    objects = ObjectStore(Path(tmp_path_factory.getbasetemp(), "shared"))
    paths = {path for path in paths if not any(other.startswith(f"{path}/") for other in paths)}
    try:
        project = discover(files_of(objects, dict.fromkeys(paths, CODE))).project
    except Refused:
        return
    _check(project, paths)


def _check(project: Project, paths: set[str]) -> None:
    assert any(project.is_source(path) for path in paths)
    assert any(project.is_test(path) for path in paths)
    assert not [path for path in paths if project.is_source(path) and project.is_test(path)]
    assert project.pythonpath[-1] == "" or "" in project.pythonpath


@pytest.mark.parametrize(
    ("path", "source", "test"),
    [
        ("pkg/a.py", True, False),
        ("pkg/tests/a.py", False, True),
        ("test_a.py", False, True),
        ("setup.py", False, False),
        ("docs/conf.py", False, False),
        ("pkg/a.c", False, False),
        ("tests/data/x.json", False, True),
    ],
)
def test_a_first_look_at_a_path(path: str, source: bool, test: bool) -> None:
    assert (looks_like_source(path), looks_like_test(path)) == (source, test)
