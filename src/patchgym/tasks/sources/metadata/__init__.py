"""What a code base says of itself, read from its files as data: name, version, Python, requirements, licence, settings
of pytest. Nothing is run: of ``setup.py`` only literals are read.

A file that does not parse says nothing; another may say the same.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from patchgym.tasks.sources.files import Files
from patchgym.tasks.sources.metadata.model import (
    Metadata,
    ini_lines,
    ini_options,
    read_ini,
    read_toml,
    string,
    strings,
    table,
)
from patchgym.tasks.sources.metadata.pyproject import dependency_groups, of_flit, of_poetry, of_project
from patchgym.tasks.sources.metadata.setuptools import of_pkg_info, of_setup_cfg, of_setup_py, setup_keywords

__all__ = [
    "Metadata",
    "ini_lines",
    "ini_options",
    "read_ini",
    "read_metadata",
    "read_toml",
    "setup_keywords",
    "string",
    "strings",
    "table",
]

_PYTEST_INI = (("pytest.ini", "pytest"), (".pytest.ini", "pytest"), ("tox.ini", "pytest"), ("setup.cfg", "tool:pytest"))
_PYTEST_OPTIONS = ("testpaths", "python_files", "pythonpath")


def read_metadata(files: Files) -> Metadata:
    """What the files of a tree declare. An sdist's ``PKG-INFO`` says what was released and comes first, then
    ``pyproject.toml``, ``setup.cfg`` and the literals of ``setup.py``."""
    pyproject = read_toml(files.text("pyproject.toml"))
    released = files.text("PKG-INFO") or files.beside.get("PKG-INFO", "")
    found = [of_pkg_info(released, files.beside.get("requires.txt", ""))]
    found += [of_project(pyproject), of_poetry(pyproject), of_flit(pyproject)]
    found += [of_setup_cfg(read_ini(files.text("setup.cfg"))), of_setup_py(files.text("setup.py"))]
    return Metadata(
        name=next((each.name for each in found if each.name), None),
        version=next((each.version for each in found if each.version), None),
        requires_python=next((each.requires_python for each in found if each.requires_python), None),
        dependencies=next((each.dependencies for each in found if each.dependencies), ()),
        extras=_united(each.extras for each in found),
        groups={**dependency_groups(pyproject), **_united(each.groups for each in found)},
        entry_points=files.beside.get("entry_points.txt", "")
        or next((each.entry_points for each in found if each.entry_points), ""),
        licences=tuple(dict.fromkeys(word for each in found for word in each.licences)),
        packages=next((each.packages for each in found if each.packages), ()),
        pytest=_pytest_settings(files, pyproject),
    )


def _united(every: Iterable[Mapping[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    """Lists by name, the first that names something."""
    found: dict[str, tuple[str, ...]] = {}
    for each in every:
        for name, wanted in each.items():
            found.setdefault(name, wanted)
    return found


def _pytest_settings(files: Files, pyproject: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Where pytest is told to look, from the first file that it would read itself."""
    for path, section in _PYTEST_INI[:2]:
        if path in files.entries:
            return _pytest_ini(files.text(path), section)
    settings = table(pyproject, "tool", "pytest", "ini_options") or table(pyproject, "tool", "pytest")
    if settings:
        return {name: _words(settings.get(name)) for name in _PYTEST_OPTIONS if settings.get(name)}
    for path, section in _PYTEST_INI[2:]:
        found = _pytest_ini(files.text(path), section)
        if found:
            return found
    return {}


def _pytest_ini(text: str, section: str) -> dict[str, tuple[str, ...]]:
    ini = read_ini(text)
    found = {name: _words(list(ini_lines(ini, section, name))) for name in _PYTEST_OPTIONS}
    return {name: words for name, words in found.items() if words}


def _words(value: object) -> tuple[str, ...]:
    return tuple(word for text in strings(value) for word in text.split())
