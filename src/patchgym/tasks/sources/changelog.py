"""What a project's changelog says of one version, as it stands there."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from patchgym.tasks.sources.files import Files

_NAMES = re.compile(
    r"(?:docs?/(?:source/)?)?(?:change(?:s|_?log)|history|news|release[-_]?notes|releases|whatsnew)(?:\.(?:md|rst|txt))?",
    re.IGNORECASE,
)
_READMES = re.compile(r"readme(?:\.(?:md|rst|txt))?", re.IGNORECASE)
_MOST_CHARS = 6000
# A heading names a version and little else: marks of a heading or a list, "version" or "v", the number, a date.
_HEADING = re.compile(
    r"(?P<marks>[#=]+\s+|[*-]\s+|\.\.\s+)?(?P<lead>[*`\[(\"]*(?:(?:version|release|changes in|new in)\s+)?)"
    r"v?(?P<version>\d+(?:\.\d+)+(?:\.?(?:a|b|rc|dev|post)\d*)?)(?P<rest>.*)",
    re.IGNORECASE,
)


class _Heading(NamedTuple):
    line: int
    version: Version
    style: str
    rest: str


def changelog_entry(files: Files, version: str) -> str:
    """The entry of ``version`` in the code base's changelog, or in the changelog of its README, without its heading;
    empty where none is found. At most 6,000 characters."""
    wanted = _version(version)
    if wanted is None:
        return ""
    paths = sorted(files.entries, key=lambda path: (path.count("/"), path))
    named = [path for path in paths if _NAMES.fullmatch(path)] + [path for path in paths if _READMES.fullmatch(path)]
    for path in named:
        found = _entry(files.text(path), wanted)
        if found:
            return found[:_MOST_CHARS]
    return ""


def _entry(text: str, wanted: Version) -> str:
    lines = text.splitlines()
    headings = list(_headings(lines))
    start = next((heading for heading in headings if heading.version == wanted), None)
    if start is None:
        return ""
    later = (each.line for each in headings if each.line > start.line and each.style == start.style)
    body = lines[start.line + 1 : next(later, len(lines))]
    body = body[1:] if body and _is_rule(body[0]) else body
    if start.style == "bullet":  # one line an entry: what follows the number is the entry
        deeper = [start.rest.strip(" :-\u2013"), *_indented(body)]
        return "\n".join(deeper).strip()
    return "\n".join(body).strip()


def _headings(lines: list[str]) -> Iterator[_Heading]:
    for number, line in enumerate(lines):
        match = _HEADING.match(line)
        version = _version(match["version"]) if match else None
        if match is None or version is None:
            continue
        marks = (match["marks"] or "").strip()
        ruled = number + 1 < len(lines) and _is_rule(lines[number + 1])
        if marks in ("*", "-"):
            yield _Heading(number, version, "bullet", match["rest"])
        elif marks or ruled or len(match["rest"]) <= 40:
            yield _Heading(number, version, marks or ("ruled" if ruled else "plain"), match["rest"])


def _indented(lines: list[str]) -> list[str]:
    """The lines that continue a list's item."""
    kept = []
    for line in lines:
        if line.strip() and not line.startswith((" ", "\t")):
            break
        kept.append(line.strip())
    return kept


def _is_rule(line: str) -> bool:
    return bool(re.fullmatch(r"([-=~^*+#.\"'`])\1{2,}\s*", line))


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None
