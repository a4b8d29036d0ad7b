"""The files of a benchmark's commits, out of git clones on this machine."""

import re
import stat
from collections import Counter
from pathlib import Path

from dulwich.errors import NotGitRepository, ObjectFormatException
from dulwich.objects import Blob, Commit, ObjectID, Tree
from dulwich.objectspec import AmbiguousShortId, parse_commit
from dulwich.repo import Repo

from patchgym.content import Entry, ObjectStore
from patchgym.errors import UsageError

_COMMIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_SYMLINK, _SUBMODULE = 0o120000, 0o160000


class Clones:
    """Git clones under one folder: that of ``owner/name`` is ``owner/name``, ``owner__name`` or ``name`` in it, bare or
    not. Only their objects are read: no hook, no filter and no work tree.

    ``missing`` counts what was asked for and not there, by what was missing; ``submodules`` counts the submodules that
    were left out of trees (their files lie in other repositories).
    """

    def __init__(self, folder: Path, objects: ObjectStore) -> None:
        """Raises:
        UsageError: there is no such folder.
        """
        if not folder.is_dir():
            raise UsageError(f"There is no folder {folder}", mend="--repos names a folder that holds git clones.")
        self.missing: Counter[str] = Counter()
        self.submodules = 0
        self._folder, self._objects = folder, objects
        self._repos: dict[str, Repo | None] = {}
        self._trees: dict[tuple[str, str], str | None] = {}

    def has(self, repo: str) -> bool:
        """Whether there is a clone of ``repo``."""
        return self._repo(repo) is not None

    def tree(self, repo: str, commit: str) -> str | None:
        """The tree of a commit, copied into the object store; None where the clone or the commit is not there.

        ``commit`` is a hash (whole or its beginning), a branch or a tag; each ``^`` behind it goes to a first parent.
        """
        key = (repo, commit)
        if key not in self._trees:
            self._trees[key] = self._copied(repo, commit)
        return self._trees[key]

    def _copied(self, repo: str, commit: str) -> str | None:
        clone = self._repo(repo)
        if clone is None:
            self.missing[f"no clone of {repo}"] += 1
            return None
        try:
            found = _commit(clone, commit)
            return self._objects.write_tree(self._entries(clone, found.tree, ""))
        except (KeyError, ValueError, ObjectFormatException, AmbiguousShortId):
            self.missing[f"no commit {commit} in the clone of {repo}"] += 1
            return None

    def _repo(self, repo: str) -> Repo | None:
        if repo not in self._repos:
            self._repos[repo] = self._opened(repo)
        return self._repos[repo]

    def _opened(self, repo: str) -> Repo | None:
        parts = repo.split("/")
        if any(part in ("", ".", "..") for part in parts) or "\0" in repo:
            return None
        for name in dict.fromkeys((repo, "__".join(parts), parts[-1])):
            for folder in (self._folder / name, self._folder / f"{name}.git"):
                try:
                    return Repo(str(folder))
                except (NotGitRepository, OSError):
                    continue
        return None

    def _entries(self, clone: Repo, tree_id: ObjectID, prefix: str) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        tree = clone.object_store[tree_id]
        if not isinstance(tree, Tree):
            raise KeyError(tree_id)
        for raw, mode, child in tree.items():
            path = prefix + raw.decode("utf-8", "surrogateescape")
            if stat.S_ISDIR(mode):
                found |= self._entries(clone, child, path + "/")
            elif mode == _SUBMODULE:
                self.submodules += 1
            else:
                found[path] = Entry(_mode(mode), self._blob(clone, child))
        return found

    def _blob(self, clone: Repo, blob_id: ObjectID) -> str:
        if blob_id.decode() in self._objects:
            return blob_id.decode()
        blob = clone.object_store[blob_id]
        if not isinstance(blob, Blob):
            raise KeyError(blob_id)
        return self._objects.put(blob.data)


def _mode(mode: int) -> int:
    """One of the three modes of a file; old histories hold others, such as 100664."""
    if mode == _SYMLINK:
        return mode
    return 0o100755 if mode & 0o100 else 0o100644


def _commit(clone: Repo, name: str) -> Commit:
    plain = name.rstrip("^")
    if not _COMMIT.fullmatch(plain):
        raise KeyError(name)
    found = parse_commit(clone, plain)
    for _ in range(len(name) - len(plain)):
        if not found.parents:
            raise KeyError(name)
        found = parse_commit(clone, found.parents[0])
    return found
