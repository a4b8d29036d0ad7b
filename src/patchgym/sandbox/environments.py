"""Locked Python environments, built once by uv into a content-addressed cache.

An environment holds what the tests need and the *metadata* of the package under test, never its code: that is imported
from the workspace. It is a virtual environment of an interpreter that this machine already has; none is downloaded.
"""

import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path

import uv

from patchgym.content import cache_root, disk_errors, publish_directory
from patchgym.errors import (
    BuildFailure,
    EnvironmentBuildError,
    OfflineError,
    PatchgymError,
    PrerequisiteError,
    StorageError,
)
from patchgym.records import Distribution, Environment

_SECONDS = 600
_TAIL_LINES = 8
_BUILDING = threading.Lock()
_NETWORK = re.compile(
    r"network connectivity is disabled|error sending request|failed to fetch|could not connect|connection re(set|fused)"
    r"|dns error|timed out|client error \(connect\)|needs network|offline mode|--offline",
    re.IGNORECASE,
)
# What uv and the build backends under it say, in the order in which it counts: the cause stands before its effects.
_COMPILERS = r"\S*(?:cc|\+\+|clang|rustc|cargo|cmake|gfortran)"
_KINDS = (
    (BuildFailure.HASH_MISMATCH, r"Hash mismatch"),
    (BuildFailure.NO_UPLOAD_TIMES, r"is missing an upload date"),
    (BuildFailure.NEEDS_BUILD, r"building from source is disabled"),
    (BuildFailure.MISSING_SYSTEM_LIBRARY, r"fatal error: \S+: No such file|cannot find -l|cannot open shared object"),
    (BuildFailure.COMPILER, rf"[Cc]ommand (?:\[)?'{_COMPILERS}'|{_COMPILERS}: (?:command )?not found"),
    (BuildFailure.COMPILER, rf"No such file or directory: '{_COMPILERS}'|can't find Rust compiler"),
    (BuildFailure.PYTHON_VERSION, r"Requires-Python|requires-python|does not satisfy Python|requires Python"),
    (BuildFailure.BUILD_BACKEND, r"Failed to build|build backend returned an error|Failed to prepare"),
    (BuildFailure.RESOLVER, r"No solution found|was not found in the package registry|unsatisfiable|no version of"),
)
# What pip's configuration says about the index, in the variables that uv reads.
_FROM_PIP = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "cert": "SSL_CERT_FILE",
    "trusted-host": "UV_INSECURE_HOST",
}


def build_environment(environment: Environment, cache: Path | None = None) -> Path:
    """The directory of the built virtual environment; built first where the cache lacks it.

    Blocking; safe to call from threads and processes at once. The directory's name is a hash of the interpreter's
    version, the lock and the distribution. Packages come from the cache where it has them, else from the index that
    pip or uv is set up for.

    Raises:
        EnvironmentBuildError: the lock does not resolve, a hash differs, a package does not build, or the lock would
            install the package under test itself; its ``kind`` says which.
        OfflineError: a package is neither cached nor within reach.
        PrerequisiteError: this machine has no such Python.
        StorageError: the cache cannot be written.
    """
    uv_in = _Uv(cache or cache_root())
    with _BUILDING:
        return _published(environment, uv_in)


def lock_environment(
    requirements: Sequence[str],
    python: str,
    *,
    exclude_newer: str | None = None,
    builds: bool = False,
    cache: Path | None = None,
) -> str:
    """Resolve requirements to a lock: a requirements text with exact versions and hashes, for every platform and for
    ``python`` (``major.minor``) and later. With ``exclude_newer`` (a day, which counts in whole), as the index was
    then; that needs an index that tells upload times, as PyPI does. Without ``builds`` only wheels count, now
    and when the lock is installed (it says so): building an sdist runs its code on this machine, outside any sandbox.

    Raises:
        EnvironmentBuildError: there is no solution; its ``kind`` says of which sort.
        OfflineError: the index is out of reach.
    """
    command = ["pip", "compile", "--universal", "--generate-hashes", "--no-header", "--no-annotate"]
    command += ["--no-python-downloads", "--python-version", python, "--index-strategy", "unsafe-best-match", "-"]
    command += [] if builds else ["--only-binary", ":all:", "--emit-build-options"]
    if exclude_newer is not None:
        command += ["--exclude-newer", exclude_newer]
    done = _Uv(cache or cache_root()).run(command, stdin="\n".join(requirements))
    if done.returncode != 0:
        raise _failure(done.stderr, f"Cannot lock {', '.join(requirements)}", python)
    return done.stdout


@lru_cache(maxsize=1)
def installed_pythons() -> tuple[str, ...]:
    """The CPython versions of this machine (``major.minor``), the running one first, then from new to old. Blocking.

    Raises:
        PrerequisiteError: uv is missing.
    """
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    done = _Uv(cache_root()).run(
        ["python", "list", "--only-installed", "--no-python-downloads", "--output-format", "json"]
    )
    versions = {(sys.version_info.major, sys.version_info.minor)}
    for found in json.loads(done.stdout or "[]"):
        if found.get("implementation") == "cpython" and found.get("variant", "default") == "default":
            versions.add((found["version_parts"]["major"], found["version_parts"]["minor"]))
    ordered = [f"{major}.{minor}" for major, minor in sorted(versions, reverse=True)]
    return (running, *(version for version in ordered if version != running))


class _Uv:
    """uv with its cache inside ours, and with pip's index."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache

    @cached_property
    def variables(self) -> dict[str, str]:
        """The environment that uv runs in. Reading pip's configuration takes half a second: once, and only on use."""
        found = {"UV_HTTP_RETRIES": "1", **os.environ, **_index_variables()}
        for name in ("VIRTUAL_ENV", "PYTHONPATH"):
            found.pop(name, None)
        return {**found, "UV_CACHE_DIR": str(self.cache / "uv"), "NO_COLOR": "1"}

    def run(self, command: list[str], stdin: str = "") -> "subprocess.CompletedProcess[str]":
        """Run uv from the cache's folder, so that no project's configuration counts; its exit code is data."""
        with disk_errors(self.cache):
            self.cache.mkdir(parents=True, exist_ok=True)
        try:
            return subprocess.run(
                [uv.find_uv_bin(), *command, "--no-progress"],
                input=stdin,
                capture_output=True,
                text=True,
                cwd=self.cache,
                env=self.variables,
                timeout=_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise EnvironmentBuildError(
                f"uv {command[0]} did not finish in {_SECONDS} s",
                mend="Run it again; what was fetched is kept.",
                kind=BuildFailure.TIMEOUT,
            ) from error
        except FileNotFoundError as error:
            raise PrerequisiteError(
                "uv is missing", why=str(error), mend=f"Run: {sys.executable} -m pip install uv"
            ) from error

    def must(self, command: list[str], python: str) -> None:
        """Run uv on the cache alone, then, where that does not do, with the network.

        Raises:
            EnvironmentBuildError, OfflineError, PrerequisiteError, StorageError: it failed.
        """
        done = self.run([*command, "--offline"])
        if done.returncode != 0 and "No interpreter found" not in done.stderr:
            done = self.run(command)
        if done.returncode != 0:
            raise _failure(done.stderr, f"Cannot build the Python {python} environment", python)


def _published(environment: Environment, uv_in: _Uv) -> Path:
    key = environment.model_dump_json(include={"python", "lock", "distribution"})
    target = uv_in.cache / "environments" / hashlib.sha256(key.encode()).hexdigest()[:24]
    if target.is_dir() and not (target / "bin" / "python").exists():  # its interpreter was removed or upgraded
        with disk_errors(target), tempfile.TemporaryDirectory(dir=target.parent) as trash:
            target.rename(Path(trash) / "stale")
    return publish_directory(target, lambda scratch: _build(environment, scratch, uv_in))


def _build(environment: Environment, scratch: Path, uv_in: _Uv) -> None:
    package = environment.distribution
    if package is None:
        _install(environment, scratch, uv_in)
        return
    if _normal(package.name) in _locked_names(environment.lock):
        raise EnvironmentBuildError(
            f"The lock installs {package.name}, which is the package under test",
            why="It would be tested from the environment, not from the workspace.",
            mend=f"Take {package.name} out of the lock.",
            kind=BuildFailure.NEEDS_ITSELF,
        )
    # Packages that share a lock share its files.
    plain = _published(environment.model_copy(update={"distribution": None}), uv_in)
    shutil.copytree(plain, scratch, symlinks=True, copy_function=os.link, dirs_exist_ok=True)
    _write_metadata(package, next((scratch / "lib").glob("python*/site-packages")))


def _install(environment: Environment, scratch: Path, uv_in: _Uv) -> None:
    venv = ["venv", "--quiet", "--relocatable", "--allow-existing", "--python", _interpreter(environment.python)]
    uv_in.must([*venv, "--no-python-downloads", str(scratch)], environment.python)
    lock = scratch / "requirements.lock"
    lock.write_text(environment.lock, encoding="utf-8")
    install = ["pip", "install", "--quiet", "--require-hashes", "--no-deps", "--compile-bytecode"]
    install += ["--index-strategy", "unsafe-best-match", "--python", str(scratch / "bin" / "python"), "-r", str(lock)]
    if _locked_names(environment.lock):
        uv_in.must(install, environment.python)


def _failure(stderr: str, what: str, python: str) -> PatchgymError:
    lines = [line for line in stderr.splitlines() if line.strip()]
    why = "\n".join(lines[-_TAIL_LINES:])
    said = re.sub(r"[\s│]+", " ", stderr)  # uv breaks its lines to the width of the terminal
    if "No interpreter found" in said:
        return PrerequisiteError(
            f"This machine has no Python {python}",
            why="An environment of this task set is locked for it.",
            mend=f"Install python{python}, or build the task set again with the Python that is here.",
        )
    if "No space left on device" in said or "Disk quota exceeded" in said:
        return StorageError(what, why="The disk is full.", mend="Free space, or set PATCHGYM_CACHE to another place.")
    # A wrong hash is no network fault, though uv says that it failed to fetch.
    if _NETWORK.search(said) and "Hash mismatch" not in said:
        return OfflineError(
            what,
            why=why,
            mend="Connect to a package index once (or set PIP_INDEX_URL); afterwards the cache serves it.",
        )
    kind = next((kind for kind, words in _KINDS if re.search(words, said)), BuildFailure.OTHER)
    return EnvironmentBuildError(what, why=why, mend="Check the lock; lock_environment() makes one.", kind=kind)


def _interpreter(python: str) -> str:
    """The running interpreter where its version is the one asked for, else the version for uv to look for."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    return sys.executable if python == running else python


def _index_variables() -> dict[str, str]:
    """Variables that give uv the index of pip's configuration, except where uv is told of its own."""
    if any(name in os.environ for name in ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL")):
        return {}
    found: dict[str, str] = {}
    done = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list", "--disable-pip-version-check"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    for line in done.stdout.splitlines():  # lowest precedence first; a later line for the same option wins
        key, _, value = line.partition("=")
        name = _FROM_PIP.get(key.rpartition(".")[2])
        if name is not None and name not in os.environ:
            found[name] = " ".join(str(ast.literal_eval(value)).split())
    return found


def _write_metadata(package: Distribution, site_packages: Path) -> None:
    """What an installer leaves beside a package's code, without the code."""
    name = re.sub(r"[-_.]+", "_", package.name).lower()
    folder = site_packages / f"{name}-{package.version}.dist-info"
    folder.mkdir()
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: {package.name}\nVersion: {package.version}\n",
        "INSTALLER": "patchgym\n",
    }
    if package.entry_points:
        files["entry_points.txt"] = package.entry_points
    files["RECORD"] = "".join(f"{folder.name}/{file},,\n" for file in [*files, "RECORD"])
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")


def _locked_names(lock: str) -> frozenset[str]:
    return frozenset(_normal(found) for found in re.findall(r"^([A-Za-z0-9][A-Za-z0-9._-]*)\s*==", lock, re.MULTILINE))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
