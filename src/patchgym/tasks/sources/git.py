"""Tasks from a git repository: the commits and merges that change both its sources and its tests."""

import json
import os
import re
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Literal

from patchgym.content import Entry, ObjectStore
from patchgym.content.objects import EXECUTABLE, FILE, SYMLINK
from patchgym.errors import DataError, UsageError
from patchgym.records import Source
from patchgym.tasks.sources.candidates import Candidate, change_between, natural_candidate
from patchgym.tasks.sources.changes import ChangeLimits, check_change
from patchgym.tasks.sources.described import described
from patchgym.tasks.sources.discover import discover, looks_like_source, looks_like_test
from patchgym.tasks.sources.files import Files
from patchgym.tasks.sources.project import Revision
from patchgym.tasks.sources.refusals import Refusal, Refused
from patchgym.tasks.sources.repository import SUBMODULE, Blobs, Commit, FileAt, Repository
from patchgym.tasks.sources.versions import plain_version, with_version_file

_MOST_FILES = 5000
_MOST_BYTES = 100 * 1024**2
_MOST_PATHS = 200
_DOCUMENTS = re.compile(r"(?:.*/)?(?:docs?/.*|[^/]*\.(?:md|rst|txt))", re.IGNORECASE)
_MERGE = re.compile(r"Merge (?:pull request|branch|remote-tracking branch|tag|commit|PR)\b.*")
_TRAILER = re.compile(r"(?:signed-off-by|co-authored-by|reviewed-by|acked-by|change-id):.*", re.IGNORECASE)
_ISSUE = re.compile(r"(?:\b(fix(?:e[sd])?|close[sd]?|resolve[sd]?):?\s+)?(?:#|\bGH-)(\d{1,7})\b", re.IGNORECASE)


@dataclass(frozen=True)
class Issues:
    """Texts of a project's issues, by number. ``refused`` counts the lines of the file that are none."""

    texts: Mapping[int, str] = field(default_factory=dict)
    refused: int = 0


def read_issues(path: Path) -> Issues:
    """Issues from a JSONL file of ``{"number", "title", "body"}``; a line that is something else is counted.

    Raises:
        UsageError: there is no such file.
    """
    if not path.is_file():
        raise UsageError(f"There is no file {path}", mend="Give a JSONL file of issues: number, title, body.")
    texts: dict[int, str] = {}
    refused = 0
    with path.open("rb") as lines:
        for line in lines:
            match _record(line):
                case {"number": int(number), "title": str(title), **rest}:
                    body = rest.get("body")
                    texts[number] = f"{title.strip()}\n\n{body.strip() if isinstance(body, str) else ''}".strip()
                case _:
                    refused += bool(line.strip())
    return Issues(texts, refused)


class GitSource:
    """Candidates from a repository's history.

    ``location`` is a folder or a URL, ``revision`` where the history starts (a branch, tag or commit), ``since`` the
    oldest commit time that counts. With ``first_parent`` a merge counts as one change and the commits that it brought
    in do not. ``issues`` gives the texts of issues that messages refer to. ``refused`` counts every commit that made no
    candidate, by its ``Refusal``; ``commits`` counts those looked at, and ``head`` is the first of them.
    """

    def __init__(
        self,
        location: str,
        *,
        revision: str = "HEAD",
        since: datetime | None = None,
        first_parent: bool = True,
        issues: Issues | None = None,
        limits: ChangeLimits | None = None,
        cache: Path | None = None,
    ) -> None:
        self.refused: Counter[Refusal] = Counter()
        self.commits = 0
        self.head = ""
        self.label = label_of(location)
        self._location, self._revision, self._since, self._cache = location, revision, since, cache
        self._first_parent = first_parent
        self._issues = issues or Issues()
        if self._issues.refused:
            self.refused[Refusal.BAD_ISSUE] = self._issues.refused
        self._limits = limits or ChangeLimits()

    def candidates(self, objects: ObjectStore) -> Generator[Candidate]:
        """Candidates, newest first. Blocking, and lazy: a commit is read when it is asked for.

        Raises:
            UsageError: no repository there, or no such revision.
            OfflineError, PrerequisiteError, DataError: see ``Repository.clone``.
        """
        repository = Repository.clone(self._location, self._cache)
        self.head = repository.resolve(self._revision)
        log = repository.log(self.head, first_parent=self._first_parent, since=self._since)
        with repository.blobs() as blobs, closing(log):
            for commit in log:
                self.commits += 1
                try:
                    _glance(commit)
                    found = self._candidate(repository, blobs, commit, objects)
                except Refused as refused:
                    self.refused[refused.reason] += 1
                except DataError:
                    self.refused[Refusal.DAMAGED] += 1
                else:
                    yield found

    def revision(self, objects: ObjectStore) -> Revision:
        """The commit that the history starts at, to plant bugs in. Blocking.

        Raises:
            Refused: it is no code base with tests.
            UsageError, OfflineError, PrerequisiteError, DataError: as ``candidates``.
        """
        repository = Repository.clone(self._location, self._cache)
        self.head = repository.resolve(self._revision)
        with repository.blobs() as blobs, closing(repository.log(self.head, first_parent=True)) as log:
            commit = next(log)
            tree = store_tree(repository.tree(commit.id), blobs, objects)
        files = Files(objects, objects.entries(tree))
        found = discover(files)
        version = found.metadata.version or plain_version(repository.tag(commit.id))
        tree = with_version_file(objects, tree, files, found.project, version)
        return described(self.label, commit.id, tree, found, files, release=version, created_at=commit.time)

    def _candidate(self, repository: Repository, blobs: Blobs, commit: Commit, objects: ObjectStore) -> Candidate:
        fixed = store_tree(repository.tree(commit.id), blobs, objects)
        before = store_tree(repository.tree(commit.parents[0]), blobs, objects)
        files = Files(objects, objects.entries(fixed))
        found = discover(files)
        project, metadata = found.project, found.metadata
        version = metadata.version or plain_version(repository.tag(commit.parents[0]))
        fixed = with_version_file(objects, fixed, files, project, version)
        before = with_version_file(objects, before, Files(objects, objects.entries(before)), project, version)
        change = change_between(objects, before, fixed, project, most_files=self._limits.files)
        check_change(objects, change, project, self._limits)
        statement, kind = self._statement(repository, commit)
        revision = described(
            self.label, commit.parents[0], before, found, files, release=version, created_at=commit.time
        )
        source = Source(
            kind="git",
            repo=self.label,
            version=version,
            base_commit=commit.parents[0],
            fix_commit=commit.id,
            license=project.license or None,
            created_at=commit.time,
            statement=kind if statement else None,
            change=f"{'merge' if len(commit.parents) > 1 else 'commit'} {commit.id}",
        )
        return natural_candidate(revision, source, change, statement)

    def _statement(self, repository: Repository, commit: Commit) -> tuple[str, Literal["issue", "commit"]]:
        """The issue that a commit closes, else the one that it names, else what its message says."""
        named = _ISSUE.findall(commit.message)
        for _, number in sorted(named, key=lambda found: not found[0]):
            if int(number) in self._issues.texts:
                return self._issues.texts[int(number)], "issue"
        message = _message(commit.message)
        if not message and len(commit.parents) > 1:
            told = repository.messages(commit.parents[0], commit.id)
            message = "\n\n".join(filter(None, map(_message, told)))
        return message, "commit"


def label_of(location: str) -> str:
    """A repository's short name: the last part of its URL or folder, without ``.git`` and without any credentials."""
    folder = Path(location).expanduser()
    plain = os.path.abspath(folder) if folder.exists() else re.sub(r"//[^/@\s]*@", "//", location)
    plain = plain.rstrip("/").removesuffix("/.git").removesuffix(".git")
    return re.split(r"[/:]", plain)[-1] or "repository"


def store_tree(tree: Mapping[str, FileAt], blobs: Blobs, objects: ObjectStore) -> str:
    """Store a commit's files and return the tree id. Submodules are left out, and so are links that leave the tree.

    Raises:
        Refused: too many files or bytes (5,000, 100 MiB), or a path that no tree should have.
    """
    if len(tree) > _MOST_FILES or sum(file.size for file in tree.values()) > _MOST_BYTES:
        raise Refused(Refusal.TOO_LARGE)
    links = {path for path, file in tree.items() if file.mode == SYMLINK}
    entries: dict[str, Entry] = {}
    for path, file in tree.items():
        parts = PurePosixPath(path).parts
        below_link = any("/".join(parts[:at]) in links for at in range(1, len(parts)))
        if below_link or path.startswith("/") or any(part in ("..", ".") or part.lower() == ".git" for part in parts):
            raise Refused(Refusal.UNSAFE_PATH, path)
        if not _is_text(path):
            raise Refused(Refusal.NOT_UTF8, ascii(path))
        if file.mode == SUBMODULE:
            continue
        known = file.id if file.id in objects else objects.put(blobs.read(file.id))
        if file.mode == SYMLINK and _leaves(path, objects.get(known)):
            continue
        mode = SYMLINK if file.mode == SYMLINK else EXECUTABLE if file.mode & 0o100 else FILE
        entries[path] = Entry(mode, known)
    return objects.write_tree(entries)


def _is_text(path: str) -> bool:
    """Whether a path is UTF-8: no other can stand in a task."""
    return not any("\ud800" <= character <= "\udfff" for character in path)


def _leaves(path: str, target: bytes) -> bool:
    if target.startswith(b"/"):
        return True
    depth = path.count("/")
    for part in target.split(b"/"):
        depth += -1 if part == b".." else 0 if part in (b"", b".") else 1
        if depth < 0:
            return True
    return False


def _glance(commit: Commit) -> None:
    """Refuse what can be told from the paths and modes of a commit alone, before any file is read."""
    if not commit.parents:
        raise Refused(Refusal.NO_PARENT)
    changes = [change for change in commit.changes if change.path]
    paths = [change.path for change in changes]
    sources = [change for change in changes if looks_like_source(change.path)]
    if not sources:
        only_documents = bool(paths) and all(_DOCUMENTS.fullmatch(path) for path in paths)
        raise Refused(Refusal.DOCS_ONLY if only_documents else Refusal.NO_SOURCE_CHANGE)
    if not any(looks_like_test(path) for path in paths):
        raise Refused(Refusal.NO_TEST_CHANGE)
    if commit.more or len(paths) > _MOST_PATHS:
        raise Refused(Refusal.TOO_BIG, f"{len(paths)} paths")
    if any(SUBMODULE in (change.old_mode, change.new_mode) for change in changes):
        raise Refused(Refusal.SUBMODULE)
    if any(SYMLINK in (change.old_mode, change.new_mode) for change in sources):
        raise Refused(Refusal.SYMLINK)
    # The same contents under other names: nothing was mended.
    if sorted(change.old_id for change in sources) == sorted(change.new_id for change in sources):
        raise Refused(Refusal.RENAMES_ONLY)


def _message(text: str) -> str:
    """A commit message without the line that a merge begins with and without trailers, which name people."""
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if not _TRAILER.fullmatch(line.strip())]
    if lines and _MERGE.fullmatch(lines[0]):
        del lines[0]
    return "\n".join(lines).strip()


def _record(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
