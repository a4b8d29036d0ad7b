"""Task folders both ways: what a task writes by itself is made from it, and every other file is kept with the task.

``Foreign.fields`` of a folder is ``{"files": {path: {"mode": ..., "text" or "base64": ...}}, "absent": [paths]}``: the
files that the task would not write, or would write otherwise, and those (or, with a slash at the end, whole folders)
that it would write and that were not there. So a folder that is imported and exported again has the same files, byte
for byte.
"""

import base64
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pydantic import JsonValue

from patchgym.content import Entry, ObjectStore, disk_errors
from patchgym.records import Foreign, Task
from patchgym.tasks.formats.refused import Refused

_KEPT_BYTES = 8 * 1024**2
_READ_BYTES = 512 * 1024**2
_FILE, _EXECUTABLE, _LINK = 0o100644, 0o100755, 0o120000


class File(NamedTuple):
    """A file as git has it: mode, and bytes (of a symbolic link: where it leads)."""

    mode: int
    data: bytes


Folder = dict[str, File]


def text_file(text: str, *, run: bool = False) -> File:
    """A text as a file, byte for byte in UTF-8."""
    return File(_EXECUTABLE if run else _FILE, text.encode())


def read_folder(path: Path) -> Folder:
    """Every file below a folder by its relative path. Links are read as links, never followed.

    Raises:
        Refused: ``too_large`` or ``unreadable``.
    """
    found: Folder = {}
    size = 0
    try:
        for root, folders, files in os.walk(path):
            links = [name for name in folders if os.path.islink(os.path.join(root, name))]
            folders[:] = sorted(name for name in folders if name not in links)
            for name in sorted([*files, *links]):
                full = os.path.join(root, name)
                info = os.lstat(full)
                size += info.st_size
                if size > _READ_BYTES:
                    raise Refused("too_large", f"{path} holds more than {_READ_BYTES // 1024**2} MB.")
                inner = os.path.relpath(full, path)
                if stat.S_ISLNK(info.st_mode):
                    found[inner] = File(_LINK, os.fsencode(os.readlink(full)))
                elif stat.S_ISREG(info.st_mode):
                    found[inner] = File(_EXECUTABLE if info.st_mode & 0o100 else _FILE, Path(full).read_bytes())
    except OSError as error:
        raise Refused("unreadable", f"{error.filename}: {error.strerror}") from error
    return found


def write_folder(path: Path, files: Mapping[str, File]) -> None:
    """Write files into a folder that is made here.

    Raises:
        Refused: a path leaves the folder, or leads through a link (``link``).
        StorageError: the disk is full or not writable.
        FileExistsError: the folder is there.
    """
    links = {name for name, file in files.items() if file.mode == _LINK}
    for name in files:
        parts = PurePosixPath(name).parts
        above = {"/".join(parts[:end]) for end in range(1, len(parts))}
        if not parts or name.startswith("/") or ".." in parts or "\0" in name or above & links:
            raise Refused("link", f"The path {name!r} leaves its folder.")
    with disk_errors(path):
        path.mkdir(parents=True)
        for name, file in sorted(files.items()):
            target = path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.mode == _LINK:
                target.symlink_to(os.fsdecode(file.data))
            else:
                target.write_bytes(file.data)
                target.chmod(0o755 if file.mode == _EXECUTABLE else 0o644)


def text_in(files: Mapping[str, File], name: str) -> str:
    """The text of a file that must be there.

    Raises:
        Refused: ``missing_field``, ``link`` or ``not_utf8``.
    """
    if name not in files:
        raise Refused("missing_field", f"It has no {name}.")
    if files[name].mode == _LINK:
        raise Refused("link", f"{name} is a link.")
    try:
        return files[name].data.decode()
    except UnicodeDecodeError as error:
        raise Refused("not_utf8", f"{name}: {error}") from error


def below(files: Mapping[str, File], folder: str) -> Folder:
    """The files of a folder, by their paths in it."""
    start = f"{folder}/"
    return {name.removeprefix(start): file for name, file in files.items() if name.startswith(start)}


def stored(files: Mapping[str, File], objects: ObjectStore) -> str:
    """The tree that holds these files."""
    return objects.write_tree({name: Entry(file.mode, objects.put(file.data)) for name, file in files.items()})


def files_of_tree(objects: ObjectStore, tree: str, prefix: str) -> Folder:
    """A tree's files, with ``prefix/`` before each path."""
    return {
        f"{prefix}/{path}": File(entry.mode, objects.get(entry.id)) for path, entry in objects.entries(tree).items()
    }


def keep_files(
    format_name: str,
    files: Mapping[str, File],
    task: Task,
    made: Callable[[Task], Folder],
    without: Sequence[str] = (),
) -> Task:
    """The task with all files that ``made`` would not make of it; without ``foreign`` where there are none. The folders
    in ``without`` are not to be made again.

    Raises:
        Refused: ``too_large``: the files to keep.
    """
    plain = task.model_copy(update={"foreign": None}) if is_own(task, format_name) else task
    rebuilt = made(plain)
    other = {name: file for name, file in files.items() if rebuilt.get(name) != file}
    absent = [*sorted(name for name in rebuilt if name not in files), *(f"{folder}/" for folder in without)]
    if not other and not absent:
        return plain
    if sum(len(file.data) for file in other.values()) > _KEPT_BYTES:
        raise Refused("too_large", f"It holds more than {_KEPT_BYTES // 1024**2} MB beside the task itself.")
    kept: dict[str, JsonValue] = {name: _to_json(file) for name, file in sorted(other.items())}
    fields: dict[str, JsonValue] = {"files": kept, "absent": [*absent]}
    return plain.model_copy(update={"foreign": Foreign(format=format_name, fields=fields)})


def with_kept(format_name: str, task: Task, made: Folder, holds: Callable[[str, File], bool]) -> Folder:
    """What ``made`` makes, with what was kept in its place where that still ``holds`` (path and file): says what the
    task says."""
    if task.foreign is None or not is_own(task, format_name):
        return made
    kept = task.foreign.fields.get("files")
    files = {name: _from_json(value) for name, value in kept.items()} if isinstance(kept, dict) else {}
    gone = absent_of(task)
    folders = tuple(name for name in gone if name.endswith("/"))
    whole = {**made, **{name: file for name, file in files.items() if name not in made or holds(name, file)}}
    return {name: file for name, file in whole.items() if name not in gone and not name.startswith(folders)}


def absent_of(task: Task) -> frozenset[str]:
    """The paths that an imported folder had not; those of whole folders end in ``/``."""
    absent = task.foreign.fields.get("absent") if task.foreign is not None else None
    return frozenset(str(name) for name in absent) if isinstance(absent, list) else frozenset()


def is_own(task: Task, format_name: str) -> bool:
    """Whether a task was imported from this format."""
    return task.foreign is not None and task.foreign.format == format_name


def _to_json(file: File) -> JsonValue:
    try:
        return {"mode": f"{file.mode:o}", "text": file.data.decode()}
    except UnicodeDecodeError:
        return {"mode": f"{file.mode:o}", "base64": base64.b64encode(file.data).decode()}


def _from_json(value: JsonValue) -> File:
    match value:
        case {"mode": ("100644" | "100755" | "120000") as mode, "text": str(text)}:
            return File(int(mode, 8), text.encode())
        case {"mode": ("100644" | "100755" | "120000") as mode, "base64": str(text)}:
            return File(int(mode, 8), base64.b64decode(text))
    raise Refused("wrong_type", "A kept file of the task is damaged.")
