"""What earlier runs and installations leave behind: compiled files, results, package metadata."""

from __future__ import annotations

import functools
import importlib.util
import marshal
import os
import re
from types import CodeType
from typing import TYPE_CHECKING

from .secrets import Search
from .walk import Found, first_line, read

_MOST = 8 * 1024 * 1024
_RESULT_NAMES = re.compile(
    r"(?:junit|test[-_]?results?|report|results?|nosetests|TEST-).*\.(?:xml|json|html|txt|log)$|.*\.trx$", re.I
)
_REWARD = re.compile(r"(?:^|/)(?:reward\.(?:txt|json)|verifier/[^/]+\.(?:txt|json)|ctrf(?:-report)?\.json)$")
_PYTEST_CACHE = ("lastfailed", "nodeids", "stepwise")
if TYPE_CHECKING:
    Parts = dict[str, tuple[object, ...]]


def look_at_compiled(found: Found, search: Search) -> bool:
    """Report a compiled file whose functions are those of the fix; whether ``found`` is a compiled file."""
    name = os.path.basename(found.path)
    if not name.endswith((".pyc", ".pyo")):
        return False
    data = b""
    for path, (old, new) in search.secrets.sources.items():
        if _module(found.path) != _module(path):
            continue
        data = data or read(found.path, _MOST)
        search.bytes += len(data)
        if data[:4] == importlib.util.MAGIC_NUMBER:
            told = _same_as_fix(data[16:], old, new)
        else:  # of another Python: its names still show
            told = next((name for name in search.secrets.names if len(name) > 3 and name.encode() in data), "")
        if told:
            search.report.add("compiled_fix", found.path, f"compiled from the fixed {path}: {told}")
    return True


def _module(path: str) -> str:
    """The module that a source or compiled file holds: its stem, or, for a package's own file, the package's name."""
    folder, name = os.path.split(path)
    stem = name.split(".", 1)[0]
    if os.path.basename(folder) == "__pycache__":
        folder = os.path.dirname(folder)
    return os.path.basename(folder) + "/" if stem == "__init__" else stem


def _same_as_fix(body: bytes, old: str, new: str) -> str:
    """A function that is compiled as the fix has it, and not as it was before; empty for none."""
    try:
        code = marshal.loads(body)
        before, after = _source_parts(old), _source_parts(new)
    except (ValueError, EOFError, TypeError, SyntaxError, MemoryError):
        return ""
    if not isinstance(code, CodeType):
        return ""
    there = _parts(code, "")
    for name, part in sorted(after.items()):
        if part != before.get(name) and there.get(name) == part:
            return name or "the module"
    return ""


@functools.lru_cache(maxsize=64)
def _source_parts(source: str) -> Parts:
    return _parts(compile(source, "x.py", "exec", dont_inherit=True), "")


def _parts(code: CodeType, name: str) -> Parts:
    """Bytecode, constants and names of a code object and of all inside it, by qualified name. Places in the file do not
    count."""
    constants = tuple(repr(one) for one in code.co_consts if not isinstance(one, CodeType))
    found: Parts = {name: (code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars)}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found.update(_parts(inner, (name + "." if name else "") + inner.co_name))
    return found


def look_at_result(found: Found, search: Search) -> None:
    """Report the results of an earlier run."""
    name = os.path.basename(found.path)
    if "/.pytest_cache/" in found.path and name in _PYTEST_CACHE:
        search.report.add(
            "stale_result", found.path, first_line(found.path)[:200] or "pytest's cache of an earlier run"
        )
    elif _REWARD.search(found.path):
        search.report.add("stale_result", found.path, "a reward file: " + first_line(found.path)[:100])
    elif name == ".coverage" or name.startswith(".coverage."):
        if read(found.path, 16).startswith((b"SQLite format 3", b"!coverage.py")):
            search.report.add("stale_result", found.path, "coverage data of an earlier run")
    elif _RESULT_NAMES.match(name) or name == "coverage.xml":
        text = read(found.path, _MOST).decode("utf-8", "replace")
        tests = [block.name for block in search.secrets.tests if re.search(r"\b" + re.escape(block.name) + r"\b", text)]
        if tests or (
            "<testsuite" in text[:4000] and search.secrets.package.replace("-", "_") in text.replace("-", "_")
        ):
            search.report.add(
                "stale_result", found.path, "a report that names " + (tests[0] if tests else "this package's tests")
            )


def look_at_metadata(folder: str, search: Search) -> None:
    """Report metadata of the package under test that names files which are installed beside it."""
    name = os.path.basename(folder)
    package = re.sub(r"[-_.]+", "_", search.secrets.package).lower()
    if not name.endswith((".dist-info", ".egg-info")) or not re.sub(r"[-_.]+", "_", name).lower().startswith(
        package + "_"
    ):
        return
    for record in ("RECORD", "installed-files.txt", "SOURCES.txt"):
        text = read(os.path.join(folder, record), _MOST).decode("utf-8", "replace")
        for line in text.split("\n"):
            path = line.split(",", 1)[0].strip()
            for key in search.secrets.sources:
                beside = os.path.join(os.path.dirname(folder), path)
                if path and (key == path or key.endswith("/" + path)) and os.path.isfile(beside):
                    inside = (os.path.realpath(beside) + "/").startswith(search.secrets.workspace + "/")
                    if not inside:
                        search.report.add(
                            "installed_source", os.path.join(folder, record), path + " is installed at " + beside
                        )
