"""Code bases made for a test: as files of a tree, as sdists, as git repositories."""

import hashlib
import io
import os
import subprocess
import tarfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from patchgym.content import Entry, ObjectStore
from patchgym.content.downloads import IndexFile
from patchgym.tasks.sources.files import Files
from patchgym.tasks.sources.releases import ReleaseSource

MODULE = """\
def double(value):
    return value * 2


def half(value):
    return value / 2
"""
MENDED = MODULE.replace("value / 2", "value // 2")
TEST = """\
from pkg import numbers


def test_double():
    assert numbers.double(2) == 4
"""
NEW_TEST = TEST + "\n\ndef test_half():\n    assert numbers.half(5) == 2\n"
PROJECT = '[project]\nname = "pkg"\nversion = "1.0"\nlicense = "MIT"\nrequires-python = ">=3.8"\n'
FLAT = {"pyproject.toml": PROJECT, "pkg/__init__.py": "", "pkg/numbers.py": MODULE, "tests/test_numbers.py": TEST}


def files_of(objects: ObjectStore, texts: Mapping[str, str | bytes], beside: Mapping[str, str] | None = None) -> Files:
    """These texts as the files of a tree."""
    data = {path: text.encode() if isinstance(text, str) else text for path, text in texts.items()}
    return Files(objects, {path: Entry(0o100644, objects.put(each)) for path, each in data.items()}, beside)


def tree_with(objects: ObjectStore, texts: Mapping[str, str | bytes]) -> str:
    """The tree of these texts."""
    return objects.write_tree(files_of(objects, texts).entries)


def make_sdist(name: str, version: str, texts: Mapping[str, str]) -> bytes:
    """An sdist's bytes, with a ``PKG-INFO``."""
    files = {"PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", **texts}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size = len(text.encode())
            member.mtime = 1_700_000_000
            archive.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


class Repo:
    """A git repository in a folder, with a work tree to write to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._clock = 1_700_000_000
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        """Run git there and return what it prints."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        when = f"{self._clock} +0000"
        who = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_AUTHOR_DATE": when}
        who |= {"GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_COMMITTER_DATE": when}
        who |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        command = ["git", "-C", str(self.folder), *arguments]
        done = subprocess.run(command, capture_output=True, env={**clean, **who}, check=True)
        return done.stdout.decode(errors="replace").strip()

    def write(self, texts: Mapping[str, str | bytes | None]) -> None:
        """Write files of the work tree; None removes one."""
        for path, text in texts.items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                target.unlink()
            else:
                target.write_bytes(text.encode() if isinstance(text, str) else text)

    def commit(self, message: str, texts: Mapping[str, str | bytes | None] | None = None) -> str:
        """Write files, commit everything and return the commit's id. Each commit is an hour after the last."""
        self.write(texts or {})
        self.git("add", "--all")
        return self.record(message)

    def record(self, message: str) -> str:
        """Commit the index as it is."""
        self._clock += 3600
        self.git("commit", "--quiet", "--allow-empty", "--allow-empty-message", "--message", message)
        return self.git("rev-parse", "HEAD")


class Shelf:
    """Sdists of one package, as an index lists them and gives them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[IndexFile] = []

    def add(self, version: str, texts: Mapping[str, str], *, yanked: bool = False, data: bytes | None = None) -> None:
        """Put a release on the shelf; releases come a day after one another."""
        content = make_sdist("pkg", version, texts) if data is None else data
        digest = hashlib.sha256(content).hexdigest()
        path = self.folder / digest / f"pkg-{version}.tar.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        when = datetime(2024, 1, 1 + len(self.files), tzinfo=UTC)
        self.files.append(
            IndexFile(
                version=version, filename=path.name, url=path.as_uri(), sha256=digest, yanked=yanked, uploaded=when
            )
        )

    def source(self, requirement: str, most: int = 10) -> ReleaseSource:
        """The source of these releases."""
        return ReleaseSource(
            requirement,
            most=most,
            listing=lambda name: tuple(self.files),
            fetch=lambda file: self.folder / (file.sha256 or "") / file.filename,
        )
