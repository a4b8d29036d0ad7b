"""Objects on their way from one store to another, as bytes: what is named, with all that it reaches, and no more.

A pack is zlib-compressed records, each a kind (``b`` for a blob, ``t`` for a tree), the 20 bytes of its id, the length
of its data in 8 bytes, and the data. What a tree reaches stands before it, so that a pack that is cut anywhere leaves
no tree without its files. Whoever unpacks believes nothing: ids are computed again, and a tree is stored only where its
entries are sound and there.
"""

import stat
import zlib
from collections.abc import Callable, Iterable, Iterator

from dulwich.errors import ObjectFormatException
from dulwich.objects import Blob, Tree

from patchgym.content.objects import EXECUTABLE, FILE, SYMLINK, ObjectStore
from patchgym.errors import DataError

_FOLDER = 0o040000
_MODES = (FILE, EXECUTABLE, SYMLINK, _FOLDER)
_HEAD = 1 + 20 + 8


def closure(store: ObjectStore, roots: Iterable[str], known: Callable[[str], bool]) -> list[str]:
    """The ids of all that ``roots`` (blobs and trees) name and reach, each once, what a tree reaches before it. What is
    ``known`` is left out, with all beneath it.

    Raises:
        DataError: an object is missing.
    """
    found: dict[str, None] = {}
    for root in sorted(set(roots)):
        _reach(store, root, known, found)
    return list(found)


def _reach(store: ObjectStore, object_id: str, known: Callable[[str], bool], found: dict[str, None]) -> None:
    if object_id in found or known(object_id):
        return
    loaded = store.load(object_id)
    if isinstance(loaded, Tree):
        for _, mode, child in loaded.items():
            name = child.decode()
            if stat.S_ISDIR(mode):
                _reach(store, name, known, found)
            elif not known(name):
                found[name] = None
    found[object_id] = None


def pack(store: ObjectStore, ids: Iterable[str], most: int) -> Iterator[bytes]:
    """Packs of these objects, in order. Each holds at most ``most`` bytes before compression, save where one object
    alone is larger.

    Raises:
        DataError: an object is missing.
    """
    held: list[bytes] = []
    size = 0
    for object_id in ids:
        loaded = store.load(object_id)
        data = loaded.as_raw_string()
        if held and size + len(data) > most:
            yield zlib.compress(b"".join(held), 1)
            held, size = [], 0
        kind = b"t" if isinstance(loaded, Tree) else b"b"
        held += [kind, bytes.fromhex(object_id), len(data).to_bytes(8, "big"), data]
        size += _HEAD + len(data)
    if held:
        yield zlib.compress(b"".join(held), 1)


def unpack(data: bytes, store: ObjectStore, most: int) -> list[str]:
    """Store what a pack holds; the ids. A pack that opens to more than ``most`` bytes is refused before it does.

    Raises:
        DataError: it is damaged, too large, or not what it says: an id that its data does not have, a tree with an
            entry that is unsound or missing.
        StorageError: the disk is full.
    """
    opener = zlib.decompressobj()
    try:
        raw = opener.decompress(data, most)
    except zlib.error as error:
        raise DataError("A pack of objects is damaged", why=str(error)) from error
    if opener.unconsumed_tail:
        raise DataError("A pack of objects is too large", why=f"It opens to more than {most} bytes.")
    if not opener.eof or opener.unused_data:
        raise DataError("A pack of objects is damaged", why="It ends too soon or too late.")
    return [_stored(*record, store) for record in _records(raw)]


def _records(raw: bytes) -> Iterator[tuple[bytes, str, bytes]]:
    at = 0
    while at < len(raw):
        head = raw[at : at + _HEAD]
        size = int.from_bytes(head[21:], "big")
        data = raw[at + _HEAD : at + _HEAD + size]
        if len(head) < _HEAD or len(data) < size:
            raise DataError("A pack of objects is damaged", why="Its last object is cut.")
        yield head[:1], head[1:21].hex(), data
        at += _HEAD + size


def _stored(kind: bytes, object_id: str, data: bytes, store: ObjectStore) -> str:
    if kind not in (b"b", b"t"):
        raise DataError("A pack of objects is damaged", why=f"It holds an object of the kind {kind!r}.")
    try:
        found: Blob | Tree = Tree.from_string(data) if kind == b"t" else Blob.from_string(data)
        entries = list(found.items()) if isinstance(found, Tree) else []
    except (ObjectFormatException, ValueError) as error:
        raise DataError(f"Object {object_id} of a pack is no object", why=str(error)) from error
    for name, mode, child in entries:
        if not name or name in (b".", b"..", b".git") or b"/" in name or b"\0" in name or mode not in _MODES:
            raise DataError(f"Tree {object_id} of a pack holds {name!r}", why="No workspace has such an entry.")
        if child.decode() not in store:
            raise DataError(f"Tree {object_id} of a pack is not whole", why=f"{child.decode()} is missing.")
    if found.id.decode() != object_id:
        raise DataError(f"Object {object_id} of a pack is another one", why=f"Its data has the id {found.id.decode()}.")
    return store.add(found)
