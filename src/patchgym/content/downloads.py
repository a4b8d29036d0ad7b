"""Files from package indexes, named by SHA-256, fetched once and kept in the cache.

pip's own client does the asking (``index_client.py``), so that indexes, find-links, proxies and certificates are those
that pip is set up for; but nothing of a file is built or run, as ``pip download`` would do with an sdist.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from patchgym.content.cache import cache_root, disk_errors
from patchgym.errors import DataError, OfflineError, PrerequisiteError, UsageError
from patchgym.records import Record

_CLIENT = Path(__file__).with_name("index_client.py")
_SECONDS = 600
_MOST_BYTES = 1024**3
_NO_PIP, _OTHER_PIP, _REFUSED = 3, 4, 5
_PROJECT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_FILENAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,250}")
_ONLINE = "Connect to a package index once (or set PIP_INDEX_URL); afterwards the cache serves it."


class Pin(Record):
    """One file on PyPI: ``kind`` says whether it is the sdist or a wheel, ``sha256`` which bytes it must have."""

    name: str
    version: str
    kind: Literal["sdist", "wheel"]
    sha256: str

    @property
    def requirement(self) -> str:
        """``name==version``."""
        return f"{self.name}=={self.version}"


class IndexFile(Record):
    """A file that an index has. ``version`` is normalised; ``sha256`` is None where the index does not tell it (a
    folder of files, say), ``uploaded`` where it does not tell when."""

    version: str
    filename: str
    url: str
    sha256: str | None = None
    requires_python: str | None = None
    yanked: bool = False
    uploaded: datetime | None = None

    @property
    def kind(self) -> Literal["sdist", "wheel"]:
        """Told by the name's ending."""
        return "wheel" if self.filename.endswith(".whl") else "sdist"


def list_files(name: str) -> tuple[IndexFile, ...]:
    """Every file of a project that pip's indexes and find-links have, whatever Python it is for. Blocking.

    Raises:
        UsageError: ``name`` is no project's name, or no index has the project.
        OfflineError: there is none, and a place could not be asked.
        PrerequisiteError: this interpreter has no pip that can be asked.
    """
    if not _PROJECT.fullmatch(name):
        raise UsageError(f"{name!r} is no name of a project on an index", mend="Write NAME or NAME==VERSION.")
    answer = _listing(_ask(["list", name], f"Cannot list the files of {name}"), name)
    files = tuple(
        IndexFile.model_validate(entry) for entry in answer["files"] if _FILENAME.fullmatch(entry["filename"])
    )
    if files:
        return files
    unasked = [line for line in answer["skipped"] if "404" not in line]
    if unasked:
        raise OfflineError(f"Cannot ask for {name}", why=unasked[0], mend=_ONLINE)
    raise UsageError(f"No index has a project {name}", mend="Check the name; PIP_INDEX_URL says which index is asked.")


def download(file: IndexFile, cache: Path | None = None) -> Path:
    """The file's path in the cache, downloaded first where it is not there. Where the index tells no hash, the file is
    kept under the one that it turns out to have. Blocking; safe to run in threads.

    Raises:
        OfflineError: not cached, and the index could not be reached or does not give it.
        DataError: what came has another hash.
        PrerequisiteError: this interpreter has no pip that can be asked.
        StorageError: the cache cannot be written.
    """
    root = (cache or cache_root()) / "downloads"
    kept = _kept(root / file.sha256, file.sha256) if file.sha256 is not None else None
    if kept is not None:
        return kept
    with disk_errors(root), tempfile.TemporaryDirectory(prefix="patchgym-") as scratch:
        arrived = Path(scratch, "file")
        _ask(["get", file.url, str(arrived), str(_MOST_BYTES)], f"Cannot download {file.filename}")
        found = _sha256(arrived)
        if file.sha256 not in (None, found):
            raise DataError(
                f"{file.filename} has another SHA-256 than was asked for",
                why=f"It has {found}, not {file.sha256}.",
                mend="Something changes files on their way, or the pin is wrong.",
            )
        folder = root / found
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f".{file.filename}.{Path(scratch).name}"
        shutil.copyfile(arrived, partial)
        return partial.rename(folder / file.filename)


def fetch(pin: Pin, cache: Path | None = None) -> Path:
    """The pinned file's path in the cache; downloaded first where it is not there. Blocking; safe to run in threads.

    Raises:
        OfflineError: not cached, and no index within reach has it.
        DataError: what came has another hash.
        PrerequisiteError: this interpreter has no pip that can be asked.
        StorageError: the cache cannot be written.
    """
    folder = (cache or cache_root()) / "downloads" / pin.sha256
    kept = _kept(folder, pin.sha256)
    if kept is not None:
        return kept
    try:
        files = list_files(pin.name)
    except UsageError as error:
        raise OfflineError(f"Cannot download {pin.requirement} ({pin.kind})", why=error.what, mend=_ONLINE) from error
    mine = [file for file in files if file.kind == pin.kind]
    told = [file for file in mine if file.sha256 == pin.sha256]
    untold = [file for file in mine if file.sha256 is None and file.version == pin.version]
    if not (told or untold):
        raise OfflineError(
            f"Cannot download {pin.requirement} ({pin.kind})",
            why=f"No index within reach has a file of the SHA-256 {pin.sha256}.",
            mend=_ONLINE,
        )
    return download((told or untold)[0].model_copy(update={"sha256": pin.sha256}), cache)


def _kept(folder: Path, sha256: str) -> Path | None:
    """The cached file, if it is there with the right bytes; a damaged one is removed."""
    if not folder.is_dir():
        return None
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if _sha256(path) == sha256:
            return path
        path.unlink()
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _listing(printed: str, name: str) -> dict[str, Any]:
    try:
        found = json.loads(printed)
    except ValueError as error:
        raise DataError(f"pip's answer on {name} is no JSON", why=str(error)) from error
    assert isinstance(found, dict)
    return found


def _ask(arguments: list[str], what: str) -> str:
    """Run the client in a process of its own, since pip is no library; ``-P`` keeps this folder off its path."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(_CLIENT), *arguments],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise OfflineError(what, why=f"pip's client did not finish in {_SECONDS} s.", mend="Run it again.") from error
    said = done.stderr.strip()[-400:]
    if done.returncode == _NO_PIP:
        raise PrerequisiteError(
            "pip is missing from this interpreter", mend=f"Run: {sys.executable} -m ensurepip --upgrade"
        )
    if done.returncode == _REFUSED:
        raise OfflineError(what, why=said.splitlines()[-1] if said else "", mend=_ONLINE)
    if done.returncode != 0:
        raise PrerequisiteError(
            f"{what}: this interpreter's pip works otherwise than those that patchgym knows",
            why=said,
            mend=f"Run: {sys.executable} -m pip install 'pip>=23,<27'",
        )
    return done.stdout
