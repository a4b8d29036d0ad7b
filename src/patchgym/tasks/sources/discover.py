"""The layout of an unknown code base, from its tree alone: what is source, what is test, where imports start.

Nothing is run. What the project declares (pytest's ``testpaths``, its packages, its name) comes first, then what most
projects do: ``src/`` or flat, a package or a module, tests beside it or inside.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from patchgym.tasks.sources.files import Files
from patchgym.tasks.sources.metadata import Metadata, read_metadata
from patchgym.tasks.sources.names import known_names
from patchgym.tasks.sources.project import Project
from patchgym.tasks.sources.refusals import Refusal, Refused

_TEST_FOLDER = re.compile(r"(?:(?:unit|functional|integration)_?)?tests?(?:_?suite)?|testing|unittests", re.IGNORECASE)
_TEST_MODULE = re.compile(r"(?:.*_)?tests?(?:_.*)?\.py")
_PATTERNS = ("test_*.py", "*_test.py", "tests.py")
_ROOTS = ("src", "lib", "python")


@dataclass(frozen=True)
class Discovered:
    """A code base's layout (``project``) and what it declares (``metadata``). ``project.license`` is the first licence
    that it names, in its own words, or empty."""

    project: Project
    metadata: Metadata


def discover(files: Files) -> Discovered:
    """The layout of a code base.

    Raises:
        Refused: it has no Python, no sources or no tests (``not_python``, ``no_sources``, ``no_tests``).
    """
    python = [path for path, entry in sorted(files.entries.items()) if path.endswith(".py") and entry.mode & 0o100000]
    python = [path for path in python if not any(part.startswith(".") for part in PurePosixPath(path).parts)]
    if not python:
        raise Refused(Refusal.NOT_PYTHON)
    metadata = read_metadata(files)
    tests = _tests(python, metadata)
    code = [path for path in python if not path.startswith(tests)] if tests else python
    root, sources = _sources(code, metadata)
    if not sources:
        raise Refused(Refusal.NO_SOURCES)
    if not tests:
        raise Refused(Refusal.NO_TESTS)
    asked = [place.strip("./") for place in metadata.pytest.get("pythonpath", ()) if ".." not in place]
    licence = metadata.licences[0] if metadata.licences else ""
    project = Project(
        license=licence, sources=sources, tests=tests, pythonpath=tuple(dict.fromkeys([root, *asked, ""]))
    )
    return Discovered(project, metadata)


def looks_like_test(path: str) -> bool:
    """Whether a path is by its name part of a test suite, whatever the project: a cheap first look."""
    parts = PurePosixPath(path).parts
    return any(_TEST_FOLDER.fullmatch(part) for part in parts[:-1]) or _is_test_module(parts[-1], _PATTERNS)


def looks_like_source(path: str) -> bool:
    """Whether a path is by its name code that is neither test, document nor tool: a cheap first look."""
    parts = PurePosixPath(path).parts
    aside = any(part in known_names().aside or part.startswith(".") for part in parts[:-1])
    return (
        path.endswith(".py") and not aside and not looks_like_test(path) and parts[-1][:-3] not in known_names().chores
    )


def _is_test_module(name: str, patterns: Iterable[str]) -> bool:
    return name == "conftest.py" or any(fnmatchcase(name, pattern) for pattern in patterns)


def _tests(python: list[str], metadata: Metadata) -> tuple[str, ...]:
    """Folders (ending in a slash) and files of the test suite, none inside another."""
    patterns = metadata.pytest.get("python_files", _PATTERNS[:2]) + _PATTERNS[2:]
    told = [place.strip("/").removeprefix("./") for place in metadata.pytest.get("testpaths", ())]
    found: set[str] = set()
    modules = 0
    for path in python:
        parts = PurePosixPath(path).parts
        if not _is_test_module(parts[-1], patterns) or _aside(parts[:-1], told):
            continue
        modules += parts[-1] != "conftest.py"
        folder = next((at for at, part in enumerate(parts[:-1], 1) if _TEST_FOLDER.fullmatch(part)), None)
        within = next((place for place in told if place and path.startswith(f"{place}/")), None)
        if folder is not None:
            found.add("/".join(parts[:folder]) + "/")
        elif within is not None and not _is_package(python, within, patterns):
            found.add(f"{within}/")
        else:
            found.add(path)
    # What the tests of the top folder share lies beside them.
    if any("/" not in path for path in found):
        found |= {path for path in python if "/" not in path and _TEST_MODULE.fullmatch(path)}
    folders = tuple(path for path in found if path.endswith("/"))
    kept = [path for path in found if not any(path != folder and path.startswith(folder) for folder in folders)]
    return tuple(sorted(kept)) if modules else ()


def _aside(folders: tuple[str, ...], told: list[str]) -> bool:
    """Whether a place is documents or tools, unless pytest is told to look there."""
    at = "/".join(folders)
    return any(part in known_names().aside for part in folders) and not any(
        at == each or at.startswith(f"{each}/") for each in told
    )


def _is_package(python: list[str], folder: str, patterns: Iterable[str]) -> bool:
    """Whether a folder that pytest looks in is the package itself, with tests among its modules."""
    inside = [path[len(folder) + 1 :] for path in python if path.startswith(f"{folder}/")]
    others = [name for name in inside if name != "__init__.py" and not _is_test_module(name, patterns)]
    return "__init__.py" in inside and bool(others)


def _sources(code: list[str], metadata: Metadata) -> tuple[str, tuple[str, ...]]:
    """Where imports start, and the packages (ending in a slash) and modules below it that make the project."""
    names = {PurePosixPath(path).parts[0] for path in code if "/" in path}
    own = {_plain(metadata.name or ""), *(_plain(each.split(".")[0].split("/")[-1]) for each in metadata.packages)} - {
        ""
    }
    roots = [root for root in _ROOTS if root in names and f"{root}/__init__.py" not in code]
    roots += sorted(
        name
        for name in names - set(_ROOTS) - known_names().aside
        if f"{name}/__init__.py" not in code and own & {_plain(part) for part in _below(code, f"{name}/")}
    )
    for prefix in [*(f"{root}/" for root in roots), ""]:
        packages = _packages(code, prefix)
        modules = _modules(code, prefix)
        mine = {
            place for place in packages | modules if _plain(place[len(prefix) :].removesuffix(".py").strip("/")) in own
        }
        chosen = mine or packages or modules
        if chosen:
            return prefix.rstrip("/"), tuple(sorted(chosen))
    return "", ()


def _below(code: list[str], prefix: str) -> set[str]:
    """The names right below a folder: folders that hold code, and modules without their ending."""
    return {path[len(prefix) :].split("/")[0].removesuffix(".py") for path in code if path.startswith(prefix)}


def _packages(code: list[str], prefix: str) -> set[str]:
    """Folders right below ``prefix`` that are packages; those of a namespace need no ``__init__.py`` in ``src``."""
    found = set()
    for path in code:
        name, slash, _ = path[len(prefix) :].partition("/")
        if not path.startswith(prefix) or not slash or name in known_names().aside or not name.isidentifier():
            continue
        if prefix or f"{name}/__init__.py" in code:
            found.add(f"{prefix}{name}/")
    return found


def _modules(code: list[str], prefix: str) -> set[str]:
    """Modules right below ``prefix`` that are no tools."""
    inside = (path for path in code if path.startswith(prefix) and "/" not in path[len(prefix) :])
    return {
        path
        for path in inside
        if path[len(prefix) : -3] not in known_names().chores and path[len(prefix) : -3].isidentifier()
    }


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()
