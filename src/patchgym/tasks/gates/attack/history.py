"""Git repositories that an agent can read: what lies ahead of the commit it stands on, or beside it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from .gitobjects import bundle_refs, loose_objects, pack_in, packed_objects
from .secrets import Search
from .walk import first_line, read

if TYPE_CHECKING:
    from .gitobjects import Objects
    from .walk import Clock

_MOST = 64 * 1024 * 1024
_ID = re.compile(r"[0-9a-f]{40}")
_HEADS = ("ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD")


def is_repository(folder: str) -> bool:
    """Whether a folder is a git directory, whatever its name."""
    return os.path.isfile(os.path.join(folder, "HEAD")) and os.path.isdir(os.path.join(folder, "objects"))


def look_into_repository(folder: str, search: Search, clock: Clock) -> None:
    """Search every object of a repository, and report refs, logs and objects that its HEAD does not lead to."""
    objects = _objects(folder, clock)
    for sha, (kind, body) in sorted(objects.items()):
        if not clock():
            return
        if kind in ("blob", "commit", "tag"):
            search.look(body, f"{folder}!{kind} {sha}", "git_object")
    refs = _refs(folder)
    history = _ancestors(_head(folder, refs), objects)
    for name, sha in sorted(refs.items()):
        target = _peeled(sha, objects)
        if name != "HEAD" and target and target not in history:
            kind = "git_stash" if name == "refs/stash" else "git_tag" if name.startswith("refs/tags/") else "git_ref"
            where = "packed-refs" if not os.path.isfile(os.path.join(folder, name)) else name
            search.report.add(
                kind, os.path.join(folder, where) + ("" if where == name else "!" + name), _told(target, objects)
            )
    for path, ids in _logs(folder):
        ahead = [sha for sha in ids if sha not in history and (sha in objects or sha in search.secrets.commits)]
        if ahead:
            search.report.add("git_reflog", path, _told(ahead[-1], objects))
    reachable = set(history)
    for sha in refs.values():
        reachable |= _ancestors(sha, objects)
    stray = sorted(sha for sha, (kind, _) in objects.items() if kind == "commit" and sha not in reachable)
    if stray:
        told = f"{len(stray)} commits that no ref leads to, e.g. {_told(stray[0], objects)}"
        search.report.add("git_unreachable", folder, told)


def look_into_pack(data: bytes, path: str, search: Search, clock: Clock) -> None:
    """Search a pack or bundle that lies about by itself."""
    start = pack_in(data)
    for name, sha in bundle_refs(data):
        if sha in search.secrets.commits:
            search.report.add("git_ref", path + "!" + name, sha)
    for sha, (kind, body) in sorted(packed_objects(data[start:], {}, clock).items()):
        if kind in ("blob", "commit"):
            search.look(body, f"{path}!{kind} {sha}", "git_object")


def _objects(folder: str, clock: Clock) -> Objects:
    stores = [os.path.join(folder, "objects")]
    found: Objects = {}
    for store in stores:
        for line in read(os.path.join(store, "info", "alternates"), 65536).decode("utf-8", "replace").split("\n"):
            other = os.path.normpath(os.path.join(store, line.strip())) if line.strip() else ""
            if other and other not in stores and len(stores) < 8:
                stores.append(other)
        for sha, kind, body in loose_objects(store, clock):
            found[sha] = (kind, body)
        packs = os.path.join(store, "pack")
        for name in sorted(os.listdir(packs)) if os.path.isdir(packs) else []:
            data = read(os.path.join(packs, name), _MOST) if name.endswith(".pack") else b""
            if pack_in(data) == 0 and clock():
                found.update(packed_objects(data, found, clock))
    return found


def _refs(folder: str) -> dict[str, str]:
    """Every ref and its id: packed ones, and loose ones over them."""
    found: dict[str, str] = {}
    for line in read(os.path.join(folder, "packed-refs"), _MOST).decode("utf-8", "replace").split("\n"):
        sha, _, name = line.partition(" ")
        if _ID.fullmatch(sha) and name:
            found[name.strip()] = sha
    for root, _, files in os.walk(os.path.join(folder, "refs")):
        for file in files:
            path = os.path.join(root, file)
            sha = first_line(path)
            if _ID.fullmatch(sha):
                found[os.path.relpath(path, folder)] = sha
    for name in _HEADS:
        match = _ID.match(first_line(os.path.join(folder, name)))
        if match:
            found[name] = match.group()
    return found


def _head(folder: str, refs: dict[str, str]) -> str:
    """The commit that HEAD names; empty where it names none."""
    line = first_line(os.path.join(folder, "HEAD"))
    if line.startswith("ref:"):
        return refs.get(line[4:].strip(), "")
    return line if _ID.fullmatch(line) else ""


def _logs(folder: str) -> list[tuple[str, list[str]]]:
    found = []
    for root, _, files in os.walk(os.path.join(folder, "logs")):
        for file in sorted(files):
            path = os.path.join(root, file)
            text = read(path, _MOST).decode("utf-8", "replace")
            found.append((path, [sha for line in text.split("\n") for sha in _ID.findall(line[:82])]))
    return sorted(found)


def _peeled(sha: str, objects: Objects) -> str:
    """The commit that an annotated tag names; other ids as they are. Empty for what is no commit."""
    for _ in range(8):
        kind, body = objects.get(sha, ("commit", b""))
        if kind != "tag":
            return sha if kind == "commit" else ""
        sha = body.partition(b"\n")[0].partition(b" ")[2].decode("ascii", "replace")
    return sha


def _ancestors(sha: str, objects: Objects) -> set[str]:
    """A commit and all before it."""
    found: set[str] = set()
    pending = [_peeled(sha, objects)] if sha else []
    while pending:
        one = pending.pop()
        if one in found or not one:
            continue
        found.add(one)
        head = objects.get(one, ("", b""))[1].partition(b"\n\n")[0].decode("utf-8", "replace")
        pending += [line[7:] for line in head.split("\n") if line.startswith("parent ")]
    return found


def _told(sha: str, objects: Objects) -> str:
    """A commit and the first line of its message."""
    message = objects.get(sha, ("", b""))[1].partition(b"\n\n")[2].decode("utf-8", "replace").strip()
    return "commit {} {}".format(sha, message.split("\n", 1)[0][:100]).rstrip()
