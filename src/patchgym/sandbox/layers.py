"""The read-only layers of a workspace, made once for each tree and kept in the cache."""

from pathlib import Path

from patchgym.content import Entry, ObjectStore, publish_directory
from patchgym.sandbox.layerfiles import make_whiteout


class _WhiteoutRefused(Exception):
    """The cache lies on a file system (an overlay) that cannot hold whiteouts."""


def workspace_layers(store: ObjectStore, cache: Path, tree: str, base: str | None) -> list[Path]:
    """The layers that show ``tree``, topmost first: its checkout, or its differences from ``base`` over the
    checkout of that.

    Raises:
        DataError: a tree is missing from the store.
        StorageError: the cache is full or not writable.
    """
    if base is not None and base != tree:
        try:
            change = publish_directory(
                cache / f"{base}-{tree}", lambda folder: _write_change(store, base, tree, folder)
            )
            return [change, *workspace_layers(store, cache, base, None)]
        except _WhiteoutRefused:
            pass
    return [publish_directory(cache / tree, lambda folder: store.checkout(tree, folder))]


def _write_change(store: ObjectStore, base: str, tree: str, folder: Path) -> None:
    """Fill a layer with the files of ``tree`` that ``base`` has otherwise, and whiteouts for what is gone."""
    before, after = store.entries(base), store.entries(tree)
    store.checkout(store.write_tree({path: at for path, at in after.items() if before.get(path) != at}), folder)
    for path in sorted(_gone(before, after)):
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            make_whiteout(place)
        except PermissionError as error:
            raise _WhiteoutRefused from error


def _gone(before: dict[str, Entry], after: dict[str, Entry]) -> set[str]:
    """The topmost paths that are gone: a folder without files is gone as a whole, as git has no empty folders."""
    kept = {path[:end] for path in after for end in range(len(path)) if path[end] == "/"}
    gone = set()
    for path in before.keys() - after.keys():
        ends = [end for end in range(len(path)) if path[end] == "/"]
        top = next((path[:end] for end in (*ends, len(path)) if path[:end] not in kept), None)
        if top is not None and top not in after:
            gone.add(top)
    return gone
