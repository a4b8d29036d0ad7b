"""The licence of a source tree, as an SPDX expression, with what it rests on.

Metadata states a licence (``License-Expression``, then the free ``License`` field, then classifiers); licence files are
known by decisive phrases of their normalised text (``licences.toml``); ``SPDX-License-Identifier`` lines in sources
count where nothing else is there. Confidence says how far to trust the result: 1.0 where metadata and texts agree, down
to 0.3 where they do not.
"""

import email.parser
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import resources
from pathlib import PurePosixPath
from typing import Any, Literal

from pydantic import Field

from patchgym.config import Settings
from patchgym.content import ObjectStore
from patchgym.errors import DataError
from patchgym.records import Record
from patchgym.tasks.gates.spdx import canonical, is_allowed, licences_in

_FILE = re.compile(r"(?:licen[cs]es?|copying|unlicense|copyright)(?:[-_.][\w.-]*)?$", re.IGNORECASE)
_METADATA = ("PKG-INFO", "METADATA", "pyproject.toml", "setup.cfg", "setup.py")
_SETUP = re.compile(r"""\blicen[cs]e\s*=\s*(?P<quote>['"])(?P<text>[^'"\n]{1,200})(?P=quote)""")
_HEADER = re.compile(r"SPDX-License-Identifier:[ \t]*([^\n*]{1,120}?)[ \t]*(?:\*/|-->)?[ \t]*$", re.MULTILINE)
_HEADER_BYTES = 2000
_MOST_HEADERS = 200
_HEAD_CHARS = 1500


class LicenceSettings(Settings):
    """Which licences a task's sources may have: SPDX ids, and how sure one must be of the licence (0 to 1)."""

    allowed: tuple[str, ...] = (
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "HPND", "ISC", "MIT", "MIT-0"),
        *("MPL-2.0", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib", "ZPL-2.1"),
    )
    least_confidence: float = Field(default=0.5, ge=0.0, le=1.0)


class LicenceEvidence(Record):
    """One place that speaks of a licence: ``says`` is what stands there, ``spdx`` what it means, None for unclear."""

    path: str
    kind: Literal["expression", "field", "classifier", "text", "header"]
    says: str
    spdx: str | None


class Licence(Record):
    """A tree's licence. ``expression`` is None where none was found; ``confidence`` is between 0 and 1; ``conflict``
    says that metadata and licence files name different ones."""

    expression: str | None
    confidence: float
    conflict: bool
    evidence: tuple[LicenceEvidence, ...]


def licence_of_tree(objects: ObjectStore, tree: str) -> Licence:
    """The licence of a tree in an object store.

    Raises:
        DataError: the tree is not in the store.
    """
    files: dict[str, str] = {}
    headers = 0
    for path, entry in sorted(objects.entries(tree).items()):
        spoken = is_licence_file(path) or PurePosixPath(path).name in _METADATA
        if spoken or (path.endswith(".py") and headers < _MOST_HEADERS):
            data = objects.get(entry.id)
            files[path] = (data if spoken else data[:_HEADER_BYTES]).decode("utf-8", "replace")
            headers += not spoken
    return licence_of(files)


def is_licence_file(path: str) -> bool:
    """Whether a file's name says that it holds a licence, at the top or in a folder of licences."""
    place = PurePosixPath(path)
    top = len(place.parts) == 1 or place.parts[0].lower() in ("licenses", "licences", "license", "docs", "doc")
    code = place.suffix.lower() in (".py", ".pyi", ".c", ".h", ".js", ".json", ".toml", ".yml", ".yaml")
    return not code and ((top and bool(_FILE.match(place.name))) or place.parts[0].upper() == "LICENSES")


def licence_of(files: Mapping[str, str]) -> Licence:
    """The licence that files, by path, speak of: metadata, licence texts, headers of sources. Others do not count."""
    found = [one for path, text in sorted(files.items()) for one in _evidence(path, text)]
    stated = {
        kind: list(dict.fromkeys(one.spdx for one in found if one.kind == kind and one.spdx is not None))
        for kind in ("expression", "field", "classifier", "text", "header")
    }
    texts = frozenset(stated["text"])
    for kind, alone in (("expression", 0.9), ("field", 0.8), ("classifier", 0.7)):
        if stated[kind]:
            said = stated[kind][0] if len(stated[kind]) == 1 else " OR ".join(stated[kind])
            named = licences_in(said)
            if not texts:
                return _licence(said, alone, False, found)
            if _agree(named, texts):
                return _licence(said, 1.0, False, found)
            return _licence(said, 0.3, True, found)
    if texts:
        # Several texts: which of them holds for what is not known, so all are taken to hold.
        return _licence(" AND ".join(sorted(texts)), 0.8 if len(texts) == 1 else 0.5, False, found)
    if stated["header"]:
        several = len(stated["header"]) > 1
        joined = " AND ".join(f"({one})" if " OR " in one else one for one in sorted(stated["header"]))
        return _licence(joined, 0.4 if several else 0.6, False, found)
    return _licence(None, 0.0, False, found)


def licence_problem(expression: str | None, confidence: float, settings: LicenceSettings) -> str:
    """Why a licence is not acceptable; empty where it is."""
    if expression is None:
        return "no licence was found"
    try:
        allowed = is_allowed(expression, settings.allowed)
    except DataError as error:
        return str(error)
    if not allowed:
        return f"{expression} is not on the list of allowed licences"
    if confidence < settings.least_confidence:
        return f"{expression} is only a guess (confidence {confidence:.1f})"
    return ""


def _agree(named: frozenset[str], texts: frozenset[str]) -> bool:
    """Whether the licences that metadata names are those whose texts are there. A licence text does not tell whether
    later versions may be chosen, and further texts may belong to parts of the tree."""
    return bool({_stem(one) for one in named} & {_stem(one) for one in texts})


def _stem(licence: str) -> str:
    return licence.removesuffix("+").removesuffix("-only").removesuffix("-or-later")


def _licence(expression: str | None, confidence: float, conflict: bool, found: list[LicenceEvidence]) -> Licence:
    expression = canonical(expression) if expression is not None else None
    return Licence(expression=expression, confidence=confidence, conflict=conflict, evidence=tuple(found))


def _evidence(path: str, text: str) -> Iterator[LicenceEvidence]:
    name = PurePosixPath(path).name
    if name in ("PKG-INFO", "METADATA"):
        yield from _from_metadata(path, text)
    elif name == "pyproject.toml":
        yield from _from_pyproject(path, text)
    elif name in ("setup.cfg", "setup.py"):
        if name == "setup.cfg":
            match = re.search(r"^licen[cs]e[ \t]*=[ \t]*(?P<text>\S[^\n]*)$", text, re.MULTILINE)
        else:
            match = _SETUP.search(text)
        if match is not None:
            yield _stated(path, "field", match["text"].strip())
    elif is_licence_file(path):
        spdx = licence_of_text(text)
        yield LicenceEvidence(path=path, kind="text", says=text.strip().partition("\n")[0][:100], spdx=spdx)
    else:
        for match in _HEADER.finditer(text[:_HEADER_BYTES]):
            yield _stated(path, "header", match[1])


def _from_metadata(path: str, text: str) -> Iterator[LicenceEvidence]:
    message = email.parser.HeaderParser().parsestr(text)
    if message["License-Expression"]:
        yield _stated(path, "expression", message["License-Expression"])
    if message["License"]:
        yield _stated(path, "field", message["License"])
    yield from _classified(path, message.get_all("Classifier") or [])


def _from_pyproject(path: str, text: str) -> Iterator[LicenceEvidence]:
    try:
        project: Any = tomllib.loads(text).get("project", {})
    except tomllib.TOMLDecodeError:
        return
    if not isinstance(project, dict):
        return
    match project.get("license"):
        case str(said):
            yield _stated(path, "expression", said)
        case {"text": str(said)}:
            yield _stated(path, "field", said)
    listed = project.get("classifiers")
    yield from _classified(path, [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else [])


def _classified(path: str, classifiers: list[str]) -> Iterator[LicenceEvidence]:
    for classifier in classifiers:
        if classifier.startswith("License :: "):
            end = classifier.rpartition(" :: ")[2]
            yield LicenceEvidence(
                path=path, kind="classifier", says=end[:100], spdx=_table()["classifiers"].get(end.strip())
            )


def _stated(path: str, kind: Literal["expression", "field", "header"], said: str) -> LicenceEvidence:
    return LicenceEvidence(path=path, kind=kind, says=" ".join(said.split())[:100], spdx=licence_of_words(said))


def licence_of_words(said: str) -> str | None:
    """The SPDX expression that a few words mean ("BSD 3-Clause OR Apache-2.0", "The MIT License"), or a whole licence
    text pasted where a name belongs; None where it is unclear."""
    words = " ".join(said.split())
    if len(words) > 200:
        return licence_of_text(said)
    names: dict[str, str] = _table()["names"]
    parts = [names.get(part.lower(), part) for part in re.split(r"\s+(OR|AND|or|and)\s+", words)]
    for tried in (words, names.get(words.lower(), ""), " ".join(parts)):
        try:
            return canonical(tried)
        except DataError:
            continue
    return None


def licence_of_text(text: str) -> str | None:
    """The SPDX id of a licence's text; None where no known licence's phrases stand in it."""
    plain = re.sub(r"[^a-z0-9]+", " ", text.lower())
    for spdx, phrases in _table()["texts"].items():
        heads = all(phrase in plain[:_HEAD_CHARS] for phrase in phrases.get("head", ()))
        holds = all(phrase in plain for phrase in phrases.get("has", ()))
        if heads and holds and not any(phrase in plain for phrase in phrases.get("lacks", ())):
            return str(spdx)
    return None


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    return tomllib.loads(resources.files("patchgym.tasks.gates").joinpath("licences.toml").read_text(encoding="utf-8"))
