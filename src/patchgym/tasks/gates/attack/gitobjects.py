"""Reading git's objects without git: loose files, packs (with both kinds of delta) and bundles. Formats as in git's own
documentation, ``gitformat-pack`` and ``gitformat-bundle``; object ids are SHA-1."""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .walk import read

if TYPE_CHECKING:
    from .walk import Clock

_MOST = 64 * 1024 * 1024  # of one file
_OBJECT = 8 * 1024 * 1024
_KINDS = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}
if TYPE_CHECKING:
    Objects = dict[str, tuple[str, bytes]]
    """Kind and content by object id."""


def loose_objects(folder: str, clock: Clock) -> Iterator[tuple[str, str, bytes]]:
    """Id, kind and content of every loose object below an ``objects`` folder."""
    for head in sorted(_listed(folder)):
        if len(head) != 2:
            continue
        for name in sorted(_listed(os.path.join(folder, head))):
            if not clock():
                return
            kind, body = loose_object(read(os.path.join(folder, head, name), _MOST))
            if kind:
                yield head + name, kind, body


def loose_object(data: bytes) -> tuple[str, bytes]:
    """Kind and content of a loose object's file; an empty kind for what is none."""
    if data[:1] != b"\x78":
        return "", b""
    try:
        header, _, body = zlib.decompressobj().decompress(data, _OBJECT).partition(b"\0")
    except zlib.error:
        return "", b""
    kind = header.partition(b" ")[0].decode("ascii", "replace")
    return (kind, body) if kind in _KINDS.values() else ("", b"")


def pack_in(data: bytes) -> int:
    """Where the pack begins in a pack or bundle file; -1 where there is none."""
    if data.startswith(b"PACK"):
        return 0
    if data.startswith((b"# v2 git bundle\n", b"# v3 git bundle\n")):
        at = data.find(b"\n\nPACK")
        return at + 2 if at >= 0 else -1
    return -1


def bundle_refs(data: bytes) -> list[tuple[str, str]]:
    """Names and ids that a bundle offers."""
    head = data[: max(data.find(b"\n\nPACK"), 0)].decode("utf-8", "replace").split("\n")[1:]
    pairs = (line.partition(" ") for line in head if line[:1] not in ("-", "@", ""))
    return [(name, sha) for sha, _, name in pairs]


def packed_objects(data: bytes, known: Objects, clock: Clock) -> Objects:
    """The objects of a pack. ``known`` may hold bases that the pack leaves out."""
    found: Objects = {}
    by_offset: dict[int, tuple[str, bytes]] = {}
    waiting: list[tuple[int, str, bytes]] = []
    at, left = 12, struct.unpack(">L", data[8:12])[0] if len(data) >= 12 else 0
    while left > 0 and at < len(data) and clock():
        start, left = at, left - 1
        try:
            kind, at = _header(data, at)
            base: str | None = None
            if kind == 6:
                back, at = _offset(data, at)
            elif kind == 7:
                base, at = data[at : at + 20].hex(), at + 20
            reader = zlib.decompressobj()
            body = reader.decompress(data[at : at + _MOST], _OBJECT)
            if reader.unconsumed_tail or not reader.eof:
                break
            at = (
                len(data) - len(reader.unused_data) if at + _MOST >= len(data) else at + _MOST - len(reader.unused_data)
            )
            if kind in _KINDS:
                by_offset[start] = (_KINDS[kind], body)
            elif kind == 6 and start - back in by_offset:
                old = by_offset[start - back]
                by_offset[start] = (old[0], _patched(old[1], body))
            elif base is not None:
                waiting.append((start, base, body))
                continue
            if start in by_offset:
                found[_id(*by_offset[start])] = by_offset[start]
        except (zlib.error, IndexError, ValueError):
            break
    for _ in range(60):  # chains of deltas that name their bases by id
        ready = [(start, base, body) for start, base, body in waiting if base in found or base in known]
        if not ready:
            break
        for start, base, body in ready:
            old = found.get(base) or known[base]
            try:
                by_offset[start] = (old[0], _patched(old[1], body))
            except IndexError:
                continue
            found[_id(*by_offset[start])] = by_offset[start]
        waiting = [one for one in waiting if one not in ready]
    return found


def _id(kind: str, body: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(body)}".encode() + b"\0" + body).hexdigest()


def _header(data: bytes, at: int) -> tuple[int, int]:
    """The kind of an object in a pack, and where its header ends."""
    kind = data[at] >> 4 & 7
    while data[at] & 128:
        at += 1
    return kind, at + 1


def _offset(data: bytes, at: int) -> tuple[int, int]:
    value = data[at] & 127
    while data[at] & 128:
        at += 1
        value = (value + 1 << 7) | data[at] & 127
    return value, at + 1


def _size(delta: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = delta[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if not byte & 128:
            return value, at


def _patched(old: bytes, delta: bytes) -> bytes:
    """The object that a delta makes from its base."""
    _, at = _size(delta, 0)
    _, at = _size(delta, at)
    new = bytearray()
    while at < len(delta) and len(new) <= _OBJECT:
        code = delta[at]
        at += 1
        if code & 128:
            where = size = 0
            for bit in range(4):
                if code & 1 << bit:
                    where |= delta[at] << 8 * bit
                    at += 1
            for bit in range(3):
                if code & 16 << bit:
                    size |= delta[at] << 8 * bit
                    at += 1
            size = size or 65536
            new += old[where : where + size]
        else:
            new += delta[at : at + code]
            at += code
    return bytes(new)


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
