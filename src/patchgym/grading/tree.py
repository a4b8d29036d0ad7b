"""The tree that is graded: the base, what a patch may change of it, and the tests as they must be."""

from patchgym.content import Entry, ObjectStore, apply_patch, patched_paths
from patchgym.errors import PatchError
from patchgym.grading.layers import ALL_LAYERS, Layer
from patchgym.grading.protect import Guarded, is_cache
from patchgym.records import Task

MOST_BYTES = 16 * 1024**2
"""The longest patch that is graded; a longer one is invalid."""
_FILE = 0o100644


def graded_tree(
    objects: ObjectStore, task: Task, patch: str, layers: frozenset[Layer] = ALL_LAYERS
) -> tuple[str, tuple[str, ...]]:
    """The tree that ``patch`` is graded on, every test of the task in it as it must be, and the protected paths that
    the patch touched in vain. Without ``Layer.TESTS`` and ``Layer.HARNESS`` a patch may change what these hold.

    Raises:
        PatchError: the patch does not parse or apply, or is too long.
        DataError: the task's trees are not in the store.
    """
    if len(patch) > MOST_BYTES:
        raise PatchError(
            f"The patch is {len(patch) / 1024**2:.0f} MB long", why=f"At most {MOST_BYTES // 1024**2} MB are graded."
        )
    try:
        patch.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise PatchError("The patch is no text", why=str(error)) from None
    base = objects.entries(task.workspace)
    guarded = Guarded(task.tests, task.environment, base, _changed(task.gold_patch), layers)
    tampered = tuple(path for path in patched_paths(patch) if guarded.refuses(path))
    patched = apply_patch(objects, task.workspace, patch, allow=lambda path: not guarded.refuses(path))
    files = {**task.tests.visible_files, **task.tests.hidden_files} if Layer.TESTS in layers else {}
    put: dict[str, Entry | None] = {}
    if Layer.HARNESS in layers:
        put |= dict.fromkeys(path for path in base if is_cache(path, base))
    put |= {path: Entry(base[path].mode if path in base else _FILE, blob) for path, blob in files.items()}
    return objects.update_tree(patched, put), tampered


def _changed(gold_patch: str) -> tuple[str, ...]:
    """What the solution changes; nothing where it is damaged, which a proof of the task finds out."""
    try:
        return patched_paths(gold_patch)
    except PatchError:
        return ()
