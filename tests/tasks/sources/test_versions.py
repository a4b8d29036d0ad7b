"""The version file that a build would have written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.content import ObjectStore
from patchgym.tasks.sources.discover import discover
from patchgym.tasks.sources.versions import plain_version, with_version_file
from tests.tasks.sources.codebase import files_of

BASE = {"src/pkg/__init__.py": "from ._version import version as __version__\n", "tests/test_a.py": "x = 1\n"}


def written(objects: ObjectStore, texts: dict[str, str], version: str = "1.2.3") -> dict[str, str]:
    """The files that were added."""
    files = files_of(objects, texts)
    tree = objects.write_tree(files.entries)
    after = objects.entries(with_version_file(objects, tree, files, discover(files).project, version))
    assert {path: after[path] for path in files.entries} == files.entries
    return {path: objects.get(entry.id).decode() for path, entry in after.items() if path not in files.entries}


def names_in(text: str) -> dict[str, object]:
    """The constants that a version file defines."""
    found: dict[str, object] = {}
    exec(compile(text, "version", "exec"), found)
    return found


@pytest.mark.parametrize(
    "told",
    [
        {"pyproject.toml": '[tool.setuptools_scm]\nwrite_to = "src/pkg/_v.py"\n'},
        {"pyproject.toml": '[tool.setuptools_scm]\nversion_file = "./src/pkg/_v.py"\n'},
        {"pyproject.toml": '[tool.hatch.build.hooks.vcs]\nversion-file = "src/pkg/_v.py"\n'},
        {"pyproject.toml": '[tool.pdm.version]\nsource = "scm"\nwrite_to = "src/pkg/_v.py"\n'},
        {"setup.py": 'setup(use_scm_version={"write_to": "src/pkg/_v.py"})\n'},
    ],
)
def test_the_file_that_a_build_tool_is_told_of(objects: ObjectStore, told: dict[str, str]) -> None:
    texts = {"src/pkg/__init__.py": "", "tests/test_a.py": "", **told}
    (text,) = written(objects, texts).values()
    found = names_in(text)
    assert found["version"] == found["__version__"] == "1.2.3"
    assert found["version_tuple"] == (1, 2, 3)


def test_a_module_that_the_package_imports_and_nobody_tells_of(objects: ObjectStore) -> None:
    texts = {**BASE, "src/pkg/a.py": "from pkg._version import git_revision, version_info\nfrom . import _version\n"}
    found = written(objects, texts)
    assert set(found) == {"src/pkg/_version.py"}
    names = names_in(found["src/pkg/_version.py"])
    assert (names["version"], names["version_info"], names["git_revision"]) == ("1.2.3", (1, 2, 3), None)


def test_a_version_file_that_is_there_stays(objects: ObjectStore) -> None:
    assert not written(objects, {**BASE, "src/pkg/_version.py": "version = '9'\n"})
    assert not written(objects, {**BASE, "src/pkg/_version/__init__.py": "version = '9'\n"})
    told = '[tool.setuptools_scm]\nwrite_to = "src/pkg/_version.py"\n'
    assert not written(objects, {**BASE, "pyproject.toml": told, "src/pkg/_version.py": "version = '9'\n"})


def test_a_template_is_filled_in_and_not_formatted(objects: ObjectStore) -> None:
    text = "[tool.setuptools_scm]\nwrite_to = 'src/pkg/_v.py'\n"
    text += 'write_to_template = "v = {version!r} {version.__class__}"\n'
    found = written(objects, {"src/pkg/__init__.py": "", "tests/test_a.py": "", "pyproject.toml": text})
    assert found == {"src/pkg/_v.py": "v = '1.2.3' {version.__class__}"}


@pytest.mark.parametrize("path", ["../out.py", "/etc/out.py", "src/../../out.py", ".git/hooks/x.py", ""])
def test_no_file_outside_the_tree(objects: ObjectStore, path: str) -> None:
    text = f'[tool.setuptools_scm]\nwrite_to = "{path}"\n'
    assert not written(objects, {"src/pkg/__init__.py": "", "tests/test_a.py": "", "pyproject.toml": text})


def test_a_plain_text_file_holds_the_version_alone(objects: ObjectStore) -> None:
    text = '[tool.setuptools_scm]\nwrite_to = "src/pkg/VERSION.txt"\n'
    found = written(objects, {"src/pkg/__init__.py": "", "tests/test_a.py": "", "pyproject.toml": text})
    assert found == {"src/pkg/VERSION.txt": "1.2.3\n"}


@pytest.mark.parametrize(
    ("tag", "version"),
    [
        ("v1.2", "1.2"),
        ("release-1.2.3", "1.2.3"),
        ("pkg-2.0rc1", "2.0rc1"),
        ("1.0.post1", "1.0.post1"),
        (None, "0.0.0"),
        ("nightly", "0.0.0"),
        ("pkg_v3.1", "3.1"),
        ("refs/1.4", "1.4"),
    ],
)
def test_the_version_of_a_tag(tag: str | None, version: str) -> None:
    assert plain_version(tag) == version


@given(version=st.text(max_size=30))
def test_whatever_the_version_the_file_is_python(version: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    objects = ObjectStore(tmp_path_factory.getbasetemp() / "shared")
    version = version.encode("utf-8", "replace").decode()
    (text,) = written(objects, BASE, version).values()
    assert names_in(text)["version"] == version
