"""What a code base needs, from what it declares; and that nothing but names with versions gets through."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement

from patchgym.content import ObjectStore
from patchgym.tasks.sources.metadata import read_metadata
from patchgym.tasks.sources.names import known_names
from patchgym.tasks.sources.project import Needs
from patchgym.tasks.sources.requirements import needs_of, package_of, ways
from tests.tasks.sources.codebase import files_of


def needs(objects: ObjectStore, texts: dict[str, str]) -> Needs:
    files = files_of(objects, texts)
    return needs_of(files, read_metadata(files))


def test_the_tests_own_extras_come_before_what_developers_use(objects: ObjectStore) -> None:
    text = '[project]\nname = "x"\ndependencies = ["attrs>=20"]\n[project.optional-dependencies]\ndev = ["mock"]\n'
    assert needs(objects, {"pyproject.toml": text}).tests == ("mock",)
    found = needs(objects, {"pyproject.toml": text + 'testing = ["pytest>=7", "freezegun"]\n'})
    assert (found.runtime, found.tests) == (("attrs>=20",), ("pytest>=7", "freezegun"))


def test_tools_are_left_out(objects: ObjectStore) -> None:
    text = '[dependency-groups]\ndev = ["Ruff", "mypy>=1", "pytest_cov", "sphinx", "hypothesis"]\n'
    assert needs(objects, {"pyproject.toml": text}).tests == ("hypothesis",)


def test_own_extras_stand_for_what_they_ask_for(objects: ObjectStore) -> None:
    text = (
        '[project]\nname = "My.Pkg"\n[project.optional-dependencies]\nall = ["six"]\ntest = ["my-pkg[all]", "mock"]\n'
    )
    assert needs(objects, {"pyproject.toml": text}).tests == ("six", "mock")


def test_extras_that_ask_for_each_other_come_to_an_end(objects: ObjectStore) -> None:
    text = '[project]\nname = "x"\n[project.optional-dependencies]\ntest = ["x[dev]", "six"]\ndev = ["x[test]"]\n'
    assert needs(objects, {"pyproject.toml": text}).tests == ("six",)


def test_requirement_files_and_tox(objects: ObjectStore) -> None:
    files = {
        "requirements.txt": "six>=1 # why\n\n",
        "requirements/test.txt": "-r common.txt\nmock==1.0 \\\n  --hash=sha256:00\n--index-url https://example.org\n",
        "requirements/common.txt": "attrs\n-r test.txt\n-r ../../../etc/passwd\n",
        "tox.ini": "[testenv]\ndeps =\n  py27: futures\n  -r{toxinidir}/more.txt\n  {[base]deps}\n  .[x]\n",
        "more.txt": "regex\n",
    }
    found = needs(objects, files)
    assert found.runtime == ("six>=1",)
    assert sorted(found.tests) == ["attrs", "futures", "mock==1.0", "regex"]


@pytest.mark.parametrize(
    "line",
    [
        "x @ https://example.org/x.whl",
        "git+https://example.org/x",
        "../up",
        "/etc/passwd",
        "-e .",
        "--pre",
        "a b",
        "@x",
    ],
)
def test_only_names_with_versions_get_through(objects: ObjectStore, line: str) -> None:
    found = needs(objects, {"requirements-test.txt": f"{line}\nsix\n"})
    assert found.tests == ("six",)


def test_what_is_left_out_is_told(objects: ObjectStore) -> None:
    text = '[project]\nname = "x"\ndependencies = ["y @ https://example.org/y.whl"]\n'
    assert needs(objects, {"pyproject.toml": text}).left_out == ("y @ https://example.org/y.whl",)


def test_ways_go_from_all_that_is_needed_to_the_code_alone() -> None:
    asked = Needs(runtime=("attrs>=20",), tests=('mock==1.0; python_version < "3.9"', "pytest<5"))
    first, loose, least = ways(asked, ["whatever"])
    assert first == ("attrs>=20", 'mock==1.0; python_version < "3.9"', "pytest<5", "whatever")
    assert loose == ("attrs>=20", 'mock ; python_version < "3.9"', "pytest", "whatever")
    assert least == ("attrs>=20", "whatever", "pytest")


def test_pytest_is_always_there() -> None:
    assert ways(Needs()) == (("pytest",),)


def test_the_package_of_a_module() -> None:
    assert [package_of(name) for name in ("yaml", "freezegun", "_cffi_backend")] == ["pyyaml", "freezegun", "cffi"]
    assert [package_of(name) for name in ("x", "--pre", "a/b", "", "a" * 99)] == [None] * 5


def test_departed_modules_are_not_of_this_python_or_soon_will_not_be() -> None:
    last = {"aifc", "asynchat", "asyncore", "audioop", "cgi", "cgitb", "chunk", "crypt", "imghdr", "imp", "lib2to3"}
    last |= {"nntplib", "ossaudiodev", "pipes", "smtpd", "sndhdr", "spwd", "sunau", "telnetlib", "uu", "xdrlib"}
    assert not (known_names().departed - last) & sys.stdlib_module_names


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet=st.characters(codec="utf-8"), max_size=120))
def test_whatever_stands_in_a_requirement_file_what_comes_out_are_requirements(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    objects = ObjectStore(tmp_path_factory.getbasetemp() / "shared")
    found = needs(objects, {"requirements-test.txt": text, "requirements.txt": text, "tox.ini": text})
    for way in ways(found):
        for line in way:
            assert Requirement(line).url is None
            assert "\n" not in line
            assert not line.startswith("-")
