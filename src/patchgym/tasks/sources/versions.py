"""The version file that a build would have written. Packages whose version comes from their repository's tags import a
module that ``git archive`` and bare trees lack; without it every test fails at import."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from patchgym.content import Entry, ObjectStore
from patchgym.content.objects import FILE
from patchgym.tasks.sources.files import Files
from patchgym.tasks.sources.metadata import read_toml, setup_keywords, table
from patchgym.tasks.sources.project import Project

# Where build tools are told of the file to write and, next to it, of a template.
_TOLD = (
    (("tool", "setuptools_scm"), ("version_file", "version_file_template")),
    (("tool", "setuptools_scm"), ("write_to", "write_to_template")),
    (("tool", "hatch", "build", "hooks", "vcs"), ("version-file", "template")),
    (("tool", "pdm", "version"), ("write_to", "write_template")),
    (("tool", "versioningit", "write"), ("file", "template")),
)
_MODULE = re.compile(r"_{0,2}(?:scm_|git_)?version(?:_info)?_{0,2}")
# A first look at a file's text, since parsing every file of a large package for each commit would take seconds.
_LIKELY = re.compile(r"^[ \t]*from[ \t]+(?:[\w.]*version\w*[ \t]+import|\.+[ \t]+import[^\n]*version)", re.I | re.M)
_NUMBERS = {"version_tuple", "__version_tuple__", "version_info", "__version_info__"}
_UNKNOWN = {"commit_id", "__commit_id__", "git_revision", "__git_revision__"}
_STANDARD = ("version", "__version__", "version_tuple", "__version_tuple__", "commit_id", "__commit_id__")


def with_version_file(objects: ObjectStore, tree: str, files: Files, project: Project, version: str) -> str:
    """The tree with the version files that its build would write, where they are missing: those that ``pyproject.toml``
    or ``setup.py`` name, and those that the package imports (``from ._version import version``)."""
    told = dict(_told(files))
    imported = _imported(files, project)
    wanted = {path: ("", names) for path, names in imported.items()}
    wanted.update({path: (template, imported.get(path, _STANDARD)) for path, template in told.items()})
    missing = {path: what for path, what in wanted.items() if path not in files.entries and _is_inside(path)}
    texts = {path: _text(path, template, names, version) for path, (template, names) in missing.items()}
    changes: dict[str, Entry | None] = {path: Entry(FILE, objects.put(text.encode())) for path, text in texts.items()}
    return objects.update_tree(tree, changes)


def plain_version(tag: str | None) -> str:
    """The version that a tag's name stands for (``v1.2``, ``release-1.2``, ``pkg-1.2.post1``); ``0.0.0`` where none is
    in it."""
    found = re.search(
        r"(?:^|[^0-9.a-z])v?(\d+(?:\.\d+)*(?:[-_.]?(?:a|b|c|rc|alpha|beta|dev|post)[-_.]?\d*)?)$", tag or ""
    )
    return found[1] if found else "0.0.0"


def _told(files: Files) -> Iterator[tuple[str, str]]:
    pyproject = read_toml(files.text("pyproject.toml"))
    scm = setup_keywords(files.text("setup.py")).get("use_scm_version")
    places = [(table(pyproject, *path), keys) for path, keys in _TOLD]
    places += [(scm, keys) for _, keys in _TOLD[:2] if isinstance(scm, dict)]
    for settings, (file, template) in places:
        path, text = settings.get(file), settings.get(template)
        if isinstance(path, str):
            yield path.removeprefix("./"), text if isinstance(text, str) else ""


def _imported(files: Files, project: Project) -> dict[str, tuple[str, ...]]:
    """Version modules that the sources import from beside them and that are not there, with the names taken."""
    found: dict[str, tuple[str, ...]] = {}
    for path in sorted(files.entries):
        text = files.text(path) if project.is_source(path) else ""
        if not _LIKELY.search(text):
            continue
        try:
            module = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
        for node in ast.walk(module):
            if isinstance(node, ast.ImportFrom):
                place = _place(path, node, project)
                if place is not None and not _exists(place, files):
                    names = tuple(alias.name for alias in node.names if alias.name != "*")
                    found[place] = tuple(dict.fromkeys((*found.get(place, _STANDARD), *names)))
    return found


def _place(path: str, node: ast.ImportFrom, project: Project) -> str | None:
    """The file that ``from ... import`` reads, where it is a version module of the project's own."""
    parts = (node.module or "").split(".")
    folders = PurePosixPath(path).parts[:-1]
    if node.level:
        if node.level - 1 > len(folders):
            return None
        parts = [*folders[: len(folders) - node.level + 1], *[part for part in parts if part]]
        if not node.module:
            module = next((alias.name for alias in node.names if _MODULE.fullmatch(alias.name)), "")
            parts = [*parts, module]
    else:
        roots = [root for root in project.pythonpath if not root or path.startswith(f"{root}/")]
        parts = [*(roots[0].split("/") if roots and roots[0] else []), *parts]
    place = "/".join(parts) + ".py"
    return place if parts and _MODULE.fullmatch(parts[-1]) and place.startswith(project.sources) else None


def _exists(place: str, files: Files) -> bool:
    folder = place.removesuffix(".py")
    return any(path in files.entries for path in (place, f"{folder}/__init__.py", f"{folder}.pyx"))


def _text(path: str, template: str, names: tuple[str, ...], version: str) -> str:
    numbers = tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])
    if template:
        # Not str.format: a template is foreign text, and formatting reaches into objects.
        for mark, text in _marks(version, numbers).items():
            template = template.replace(mark, text)
        return template
    if not path.endswith(".py"):
        return f"{version}\n"
    lines = ['"""The version, as a build would have written it."""', ""]
    for name in names:
        if name.isidentifier():
            value: Any = numbers if name in _NUMBERS else None if name in _UNKNOWN else version
            lines.append(f"{name} = {value!r}")
    return "\n".join(lines) + "\n"


def _marks(version: str, numbers: tuple[int, ...]) -> Mapping[str, str]:
    return {
        "{version!r}": repr(version),
        "{version}": version,
        "{version_tuple!r}": repr(numbers),
        "{version_tuple}": repr(numbers),
        "{}": version,
    }


def _is_inside(path: str) -> bool:
    parts = path.split("/")
    return bool(path) and not path.startswith("/") and all(part not in ("", ".", "..", ".git") for part in parts)
