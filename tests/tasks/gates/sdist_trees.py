"""Real sdists as trees."""

import tarfile
from pathlib import Path

from patchgym.content import Entry, ObjectStore


def tree_of_sdist(path: Path, objects: ObjectStore) -> str:
    """The tree of an sdist's text files, without its top folder."""
    entries: dict[str, Entry] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            inside = member.name.partition("/")[2]
            stream = archive.extractfile(member) if member.isreg() and inside else None
            if stream is not None and ".." not in inside:
                entries[inside] = Entry(0o100644, objects.put(stream.read()))
    return objects.write_tree(entries)
