"""What lies inside zip and tar files, at most two of them deep."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .secrets import Search

if TYPE_CHECKING:
    from .walk import Clock

_MEMBER = 4 * 1024 * 1024
_MEMBERS = 20000
_MAGIC = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00")
_BROKEN = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    RuntimeError,
    NotImplementedError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    tarfile.TarError,
)


def is_archive(head: bytes) -> bool:
    """Whether a file that begins so (512 bytes suffice) is a zip, a tar or something compressed."""
    return head.startswith(_MAGIC) or head[257:262] == b"ustar"


def look_inside(data: bytes, place: str, search: Search, clock: Clock, depth: int = 0) -> None:
    """Search the members of an archive."""
    for name, member in _members(data):
        if not clock():
            return
        inside = place + "!" + name
        if is_archive(member[:512]) and depth < 2:
            look_inside(member, inside, search, clock, depth + 1)
        else:
            search.look(member, inside, "archive")


def _members(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and contents, as far as the archive is whole."""
    try:
        if data.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                for entry in archive.infolist()[:_MEMBERS]:
                    if entry.file_size <= _MEMBER and not entry.flag_bits & 1:
                        with archive.open(entry) as stream:
                            yield entry.filename, stream.read(_MEMBER)
        elif _is_tar(data):
            with tarfile.open(fileobj=io.BytesIO(data), mode="r:*") as tar:
                for count, member in enumerate(tar):
                    if count >= _MEMBERS:
                        return
                    if member.isfile() and member.size <= _MEMBER:
                        part = tar.extractfile(member)
                        yield member.name, part.read(_MEMBER) if part is not None else b""
        else:
            yield "content", _unpacked(data, _MEMBER)
    except _BROKEN:
        return


def _is_tar(data: bytes) -> bool:
    return data[257:262] == b"ustar" or _unpacked(data, 512)[257:262] == b"ustar"


def _unpacked(data: bytes, most: int) -> bytes:
    """The first bytes of something compressed."""
    for magic, opened in ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ", lzma.open)):
        if data.startswith(magic):
            try:
                with opened(io.BytesIO(data), "rb") as stream:
                    return bytes(stream.read(most))
            except _BROKEN:
                return b""
    return b""
