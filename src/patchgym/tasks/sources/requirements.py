"""What a code base needs to be imported and tested, from what it declares. Requirements are data: only names with
versions pass, never a path, a URL or an option for the installer."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from patchgym.tasks.sources.files import Files
from patchgym.tasks.sources.metadata import Metadata, ini_lines, read_ini
from patchgym.tasks.sources.names import known_names
from patchgym.tasks.sources.project import Needs

_TEST_NAMES = frozenset({"test", "tests", "testing", "unittest", "unittests", "tests-require", "pytest"})
_DEV_NAMES = frozenset({"dev", "develop", "development", "devel"})
_RUNTIME_FILES = ("requirements.txt", "requirements/base.txt", "requirements/main.txt")
_TEST_FILES = (
    *(f"requirements{mark}{name}.txt" for mark in "-_/" for name in ("test", "tests", "testing")),
    *(f"{name}{mark}requirements.txt" for mark in "-_/" for name in ("test", "tests", "testing")),
)
_DEV_FILES = ("requirements-dev.txt", "requirements_dev.txt", "dev-requirements.txt", "requirements/dev.txt")
_MOST_FILES = 20


def needs_of(files: Files, metadata: Metadata) -> Needs:
    """What a code base asks for: its own requirements, and those of its tests: extras and groups with a test's name,
    ``tox.ini``, requirement files; where none of these is there, what its developers use, without linters and the like.
    """
    reader = _Reader(files, metadata)
    declared = metadata.dependencies
    runtime = reader.plain(declared) or reader.of_files(path for path in _RUNTIME_FILES if path in files.entries)
    tests = reader.named(_TEST_NAMES) + reader.of_files(path for path in _TEST_FILES if path in files.entries)
    tests += reader.of_tox()
    if not tests:
        tests = reader.named(_DEV_NAMES) + reader.of_files(path for path in _DEV_FILES if path in files.entries)
    tools = known_names().tools
    wanted = (line for line in tests if canonicalize_name(Requirement(line).name) not in tools)
    left_out = tuple(sorted(set(reader.left_out)))
    return Needs(tuple(dict.fromkeys(runtime)), tuple(dict.fromkeys(wanted)), metadata.requires_python, left_out)


def ways(needs: Needs, added: Iterable[str] = ()) -> tuple[tuple[str, ...], ...]:
    """What to ask the resolver for, best first: all that is needed; the tests' packages without the versions that they
    are held to; no more than the code itself. pytest is always there, and so is ``added``."""
    extra = tuple(added)
    names = [Requirement(line) for line in needs.tests]
    loose = tuple(f"{each.name}{_extras(each)}" + (f" ; {each.marker}" if each.marker else "") for each in names)
    tried = [_whole(needs.runtime, needs.tests, extra), _whole(needs.runtime, loose, extra)]
    return tuple(dict.fromkeys([*tried, _whole(needs.runtime, (), extra)]))


def package_of(module: str) -> str | None:
    """The package that is likely to hold a top-level module; None where the name cannot be one."""
    known = known_names().modules.get(module)
    if known is not None:
        return known
    return canonicalize_name(module) if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{1,60}", module) else None


def _whole(*parts: tuple[str, ...]) -> tuple[str, ...]:
    lines = dict.fromkeys(line for part in parts for line in part)
    if not any(canonicalize_name(Requirement(line).name) == "pytest" for line in lines):
        lines["pytest"] = None
    return tuple(lines)


def _extras(requirement: Requirement) -> str:
    return f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""


class _Reader:
    """Requirements of one code base; ``left_out`` gathers those that are no names with versions."""

    def __init__(self, files: Files, metadata: Metadata) -> None:
        self.left_out: list[str] = []
        self._files = files
        self._own = canonicalize_name(metadata.name or "")
        self._named: dict[str, tuple[str, ...]] = {
            canonicalize_name(name): wanted for name, wanted in {**metadata.extras, **metadata.groups}.items()
        }
        for name in metadata.extras.keys() & metadata.groups.keys():
            self._named[canonicalize_name(name)] = (*metadata.extras[name], *metadata.groups[name])
        self._open: set[str] = set()

    def plain(self, lines: Iterable[str]) -> list[str]:
        """The lines that are requirements of other packages, spelled one way; those of the code base's own extras are
        replaced by what they stand for."""
        found: list[str] = []
        for line in lines:
            own = re.fullmatch(r"(?:-e\s*)?\.\[([A-Za-z0-9_,\s.-]+)\]", line.strip())
            if own:
                found += self.named({canonicalize_name(name) for name in re.split(r"[\s,]+", own[1]) if name})
                continue
            try:
                requirement = Requirement(line)
            except InvalidRequirement:
                self.left_out.append(line.strip()[:100])
                continue
            if canonicalize_name(requirement.name) == self._own:
                found += self.named({canonicalize_name(name) for name in requirement.extras})
            elif requirement.url is not None:
                self.left_out.append(line.strip()[:100])
            else:
                found.append(str(requirement))
        return found

    def named(self, names: Iterable[str]) -> list[str]:
        """The requirements of extras and groups."""
        found: list[str] = []
        for name in sorted(names):
            if name in self._named and name not in self._open:
                self._open.add(name)
                found += self.plain(self._named[name])
                self._open.discard(name)
        return found

    def of_files(self, paths: Iterable[str]) -> list[str]:
        """The requirements of requirement files, with those that they include."""
        found: list[str] = []
        waiting, seen = list(paths), set[str]()
        while waiting and len(seen) < _MOST_FILES:
            path = waiting.pop(0)
            if path in seen:
                continue
            seen.add(path)
            for line in _lines(self._files.text(path)):
                included = re.fullmatch(r"(?:-r\s*|--requirement[\s=]+)(\S+)", line)
                if included:
                    waiting.append(_beside(path, included[1]))
                elif not line.startswith("-") or line.startswith("-e"):
                    found += self.plain([re.split(r"\s+--", line)[0]])
        return found

    def of_tox(self) -> list[str]:
        """The ``deps`` of ``tox.ini``, whatever factor they stand under."""
        found: list[str] = []
        for line in ini_lines(read_ini(self._files.text("tox.ini")), "testenv", "deps"):
            plain = re.sub(r"^[\w{},.!-]+:\s*", "", line)
            included = re.fullmatch(r"(?:-r\s*)(\S+)", plain)
            if included:
                found += self.of_files([_beside("tox.ini", included[1].removeprefix("{toxinidir}/"))])
            elif "{" not in plain and not plain.startswith("-c"):
                found += self.plain([plain])
        return found


def _lines(text: str) -> list[str]:
    """The lines of a requirement file without comments, continued ones joined."""
    joined = re.sub(r"\\\r?\n", " ", text)
    return [line for line in (re.sub(r"(?:^|\s)#.*", "", each).strip() for each in joined.splitlines()) if line]


def _beside(path: str, named: str) -> str:
    """A path named in the file ``path``; what leaves the tree names no file of it."""
    parts: list[str] = []
    for part in [*PurePosixPath(path).parts[:-1], *PurePosixPath(named).parts]:
        if part == "..":
            parts = parts[:-1] if parts else ["\0"]
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
