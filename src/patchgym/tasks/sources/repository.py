"""A git repository as a source of trees: cloned bare, read by the git program, never checked out.

What a repository says is data. No hook runs, no submodule is fetched, no transport but the usual ones is spoken, no
``GIT_*`` variable of this process counts, and a place or a revision that looks like an option is refused.
"""

import hashlib
import os
import re
import subprocess
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, NamedTuple

from patchgym.content import cache_root, publish_directory
from patchgym.errors import DataError, OfflineError, PatchgymError, PrerequisiteError, UsageError

SUBMODULE = 0o160000
_SCHEMES = ("https", "http", "ssh", "git", "file")
_SECONDS = 1800
_CHUNK = 1 << 16
_MOST_CHANGES = 2000
_OFFLINE = re.compile(
    r"could not resolve host|unable to access|connection (?:refused|timed out)|network is unreachable", re.I
)
_SAFE = ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "protocol.ext.allow=never"]


class FileAt(NamedTuple):
    """An entry of a commit's tree: git mode, object id and size in bytes (0 for a submodule)."""

    mode: int
    id: str
    size: int


@dataclass(frozen=True)
class Changed:
    """One path that a commit changes: modes and object ids before and after (mode 0 where there is none)."""

    path: str
    old_mode: int
    new_mode: int
    old_id: str
    new_id: str


@dataclass(frozen=True)
class Commit:
    """A commit, with what it changes against its first parent. ``more`` says that it changes over 2,000 paths, of which
    only so many are here."""

    id: str
    parents: tuple[str, ...]
    time: datetime
    message: str
    changes: tuple[Changed, ...]
    more: bool


def checked_location(location: str) -> str:
    """A path or URL as git may be given it: a path absolute, a URL as it is.

    Raises:
        UsageError: it looks like an option, names another transport, or is a path where no repository is.
    """
    if location.startswith("-") or re.match(r"[A-Za-z0-9+.-]*::", location) or re.search(r"[\x00-\x1f]", location):
        raise UsageError(
            f"{location!r} is no place of a repository", mend="Give a folder or an https, ssh or file URL."
        )
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", location)
    if scheme is not None:
        if scheme[1].lower() not in _SCHEMES or re.match(r"(?:[^/@]*@)?-", scheme[2]):
            raise UsageError(f"{location!r} is no place of a repository", why=f"Transports: {', '.join(_SCHEMES)}.")
        return location
    if re.match(r"[A-Za-z0-9_.]+@[A-Za-z0-9][A-Za-z0-9.-]*:[^-]", location):
        return location
    path = Path(os.path.abspath(Path(location).expanduser()))
    if not (path / "HEAD").is_file() and not (path / ".git").exists():
        raise UsageError(f"There is no git repository at {path}", mend="Give the folder of a clone, or its URL.")
    return str(path)


class Repository:
    """A bare clone in the cache. Its methods block, and give what git says in git's order."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def clone(cls, location: str, cache: Path | None = None) -> "Repository":
        """Clone a repository, or bring the clone up to date; without network an old clone serves.

        Raises:
            UsageError: ``location`` is none.
            OfflineError: it is not within reach and was never cloned.
            DataError: git refuses it.
            PrerequisiteError: this machine has no git.
            StorageError: the cache cannot be written.
        """
        place = checked_location(location)
        folder = (cache or cache_root()) / "repositories" / hashlib.sha256(place.encode()).hexdigest()[:24]
        fresh = not folder.is_dir()

        def build(scratch: Path) -> None:
            clone = ["clone", "--quiet", "--bare", "--no-local", "--no-recurse-submodules", "--template="]
            done = _git([*clone, "--", place, str(scratch / "bare")], None, own=False)
            if done.returncode != 0:
                raise _refusal(done.stderr.decode(errors="replace"), location)

        publish_directory(folder, build)
        if not fresh:
            refs = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
            fetch = ["fetch", "--quiet", "--prune", "--no-recurse-submodules", "--no-write-fetch-head"]
            done = _git([*fetch, "--", place, *refs], folder / "bare", own=False)
            said = done.stderr.decode(errors="replace")
            if done.returncode != 0 and not _OFFLINE.search(said):
                raise _refusal(said, location)
        return cls(folder / "bare")

    def resolve(self, revision: str) -> str:
        """The commit id of a branch, tag or abbreviated id.

        Raises:
            UsageError: there is no such commit.
        """
        done = None
        if not revision.startswith("-"):
            done = _git(["rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"], self.path)
        if done is None or done.returncode != 0:
            raise UsageError(f"The repository has no commit {revision!r}", mend="Name a branch, a tag or a commit.")
        return done.stdout.decode().strip()

    def log(self, commit: str, *, first_parent: bool = True, since: datetime | None = None) -> Generator[Commit]:
        """The history of a commit, newest first, each commit with its changes against its first parent. It streams:
        memory does not grow with its length.

        Raises:
            DataError: the repository is damaged.
        """
        form = "--format=%x01%H%x00%P%x00%ct%x00%B%x00"
        command = ["log", "-z", "--raw", "--no-abbrev", "--no-renames", "--no-show-signature", form]
        command += ["--diff-merges=first-parent", *(["--first-parent"] if first_parent else [])]
        command += [f"--since={int(since.timestamp())}"] if since is not None else []
        with closing(_tokens([*command, commit], self.path)) as tokens:
            head = next(tokens, None)
            while head is not None:
                parents, when, message = (next(tokens, "") for _ in range(3))
                changes: list[Changed] = []
                more, following = False, next(tokens, None)
                while following is not None and not following.startswith("\x01"):
                    raw = following.lstrip("\n")
                    if raw.startswith(":"):
                        path = next(tokens, "")
                        more = len(changes) >= _MOST_CHANGES
                        changes += [] if more else [_changed(raw, path)]
                    following = next(tokens, None)
                time = datetime.fromtimestamp(int(when), UTC)
                yield Commit(head[1:], tuple(parents.split()), time, message.strip(), tuple(changes), more)
                head = following

    def tree(self, commit: str) -> dict[str, FileAt]:
        """Every file of a commit, by path.

        Raises:
            DataError: the repository is damaged.
        """
        found: dict[str, FileAt] = {}
        with closing(_tokens(["ls-tree", "-r", "-z", "-l", "--full-tree", commit], self.path)) as tokens:
            for line in tokens:
                head, tab, path = line.partition("\t")
                if tab:
                    mode, _, object_id, size = head.split()
                    found[path] = FileAt(int(mode, 8), object_id, int(size) if size.isdigit() else 0)
        return found

    def tag(self, commit: str) -> str | None:
        """The nearest tag at or before a commit; None where there is none."""
        done = _git(["describe", "--tags", "--abbrev=0", commit], self.path)
        return done.stdout.decode(errors="replace").strip() or None if done.returncode == 0 else None

    def messages(self, before: str, after: str, most: int = 5) -> list[str]:
        """The messages of at most so many commits that ``after`` has and ``before`` has not, oldest first."""
        command = ["log", "-z", "--reverse", f"--max-count={most}", "--no-merges", "--format=%B", f"{before}..{after}"]
        done = _git(command, self.path)
        return [text.strip() for text in done.stdout.decode(errors="replace").split("\0") if text.strip()]

    def blobs(self) -> "Blobs":
        """A reader of blobs; to be closed."""
        return Blobs(self.path)


class Blobs:
    """Reads blobs by id from one ``git cat-file --batch``, one at a time. Close it, or use it in a ``with``."""

    def __init__(self, path: Path) -> None:
        self._process = _start(["cat-file", "--batch"], path, stdin=subprocess.PIPE)

    def __enter__(self) -> "Blobs":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def read(self, blob_id: str) -> bytes:
        """The bytes of a blob.

        Raises:
            DataError: the repository lacks it.
        """
        source, sink = self._process.stdin, self._process.stdout
        assert source is not None
        assert sink is not None
        source.write(f"{blob_id}\n".encode())
        source.flush()
        head = sink.readline().split()
        if len(head) != 3 or head[1] != b"blob":
            raise DataError(f"The repository lacks the file contents {blob_id}", why="The clone may be a partial one.")
        data = sink.read(int(head[2]))
        sink.read(1)
        return data

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def _changed(raw: str, path: str) -> Changed:
    old_mode, new_mode, old_id, new_id = raw[1:].split()[:4]
    return Changed(path, int(old_mode, 8), int(new_mode, 8), old_id, new_id)


def _tokens(command: list[str], path: Path) -> Generator[str]:
    """What git prints between NUL bytes, as it comes. Undecodable bytes are surrogate-escaped, as in paths."""
    process = _start(command, path)
    stream: IO[bytes] | None = process.stdout
    assert stream is not None
    try:
        rest = b""
        while chunk := stream.read(_CHUNK):
            *whole, rest = (rest + chunk).split(b"\0")
            for token in whole:
                yield token.decode("utf-8", "surrogateescape")
        if process.wait() != 0:
            raise DataError(f"git could not read {path}", why=f"git {command[0]} ended with {process.returncode}.")
    finally:
        process.kill()
        process.communicate()


def _environment(own: bool) -> Mapping[str, str]:
    """Variables for git. For what concerns our clone alone (``own``) no configuration of this machine counts; to reach
    another repository it does, since proxies and credentials are set there."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    kept |= {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": ":".join(_SCHEMES), "LC_ALL": "C"}
    if own:
        kept |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_NO_REPLACE_OBJECTS": "1"}
    return kept


def _git(arguments: list[str], path: Path | None, *, own: bool = True) -> "subprocess.CompletedProcess[bytes]":
    command = ["git", *_SAFE, *(["--git-dir", str(path)] if path is not None else []), *arguments]
    try:
        return subprocess.run(
            command, capture_output=True, env=_environment(own), stdin=subprocess.DEVNULL, timeout=_SECONDS, cwd="/"
        )
    except FileNotFoundError as error:
        raise _no_git() from error
    except subprocess.TimeoutExpired as error:
        raise OfflineError(f"git {arguments[0]} did not finish in {_SECONDS} s", mend="Run it again.") from error


def _start(arguments: list[str], path: Path, stdin: int = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
    command = ["git", *_SAFE, "-c", "i18n.logOutputEncoding=UTF-8", "--git-dir", str(path), *arguments]
    try:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(own=True),
            cwd="/",
        )
    except FileNotFoundError as error:
        raise _no_git() from error


def _no_git() -> PrerequisiteError:
    return PrerequisiteError("git is missing", mend="Install git (on Debian: apt-get install git).")


def _refusal(said: str, location: str) -> PatchgymError:
    shown = re.sub(r"//[^/@\s]*@", "//", location)
    why = re.sub(r"//[^/@\s]*@", "//", said.strip()[-300:])
    if _OFFLINE.search(said):
        return OfflineError(f"Cannot reach {shown}", why=why, mend="Connect once; afterwards the cache serves it.")
    return DataError(f"git cannot clone {shown}", why=why)
