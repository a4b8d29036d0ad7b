"""Content-addressed material: file trees and patches in bare git stores, pinned downloads, the cache of both."""

from patchgym.content.cache import cache_root, disk_errors, publish_directory
from patchgym.content.downloads import Pin, fetch
from patchgym.content.objects import Entry, ObjectStore, written_out
from patchgym.content.patches import apply_patch, diff_trees, patch_scope, patched_paths

__all__ = [
    "Entry",
    "ObjectStore",
    "Pin",
    "apply_patch",
    "cache_root",
    "diff_trees",
    "disk_errors",
    "fetch",
    "patch_scope",
    "patched_paths",
    "publish_directory",
    "written_out",
]
