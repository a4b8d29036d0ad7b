"""``patchgym doctor``: what this machine can do."""

import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path

import click

from patchgym.cli.console import show_json, show_table
from patchgym.content import cache_root
from patchgym.errors import PatchgymError, PrerequisiteError
from patchgym.records import Record

_FREE_GB = 4.0


class Check(Record):
    """One thing that is there or not: what was found, and the command that mends it. ``needed`` ones decide the exit
    code."""

    name: str
    ok: bool
    needed: bool
    found: str
    mend: str = ""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
def command(as_json: bool) -> None:
    """Say what this machine can do, what is missing, and what to do about it.

    Exit code 3 when something is missing that the closed loop needs.
    """
    checks = [_python(), _namespace(), _limits(), _docker(), _uv(), _pip(), _cache(), _training(), _machine()]
    if as_json:
        show_json([check.model_dump(mode="json") for check in checks])
    else:
        rows = [(c.name, "ok" if c.ok else "missing", "\n".join(filter(None, (c.found, c.mend)))) for c in checks]
        show_table("This machine", ("what", "", "found"), rows)
    sys.exit(PrerequisiteError.exit_code if any(check.needed and not check.ok for check in checks) else 0)


def _python() -> Check:
    return Check(name="python", ok=True, needed=True, found=f"{platform.python_version()} at {sys.executable}")


def _namespace() -> Check:
    from patchgym.sandbox import check_namespace
    from patchgym.sandbox.seccomp import seccomp_filter

    try:
        check_namespace()
    except PatchgymError as error:
        return Check(name="sandbox", ok=False, needed=True, found=f"{error.what}. {error.why}", mend=error.mend)
    filtered = "" if seccomp_filter() else "; no system call is filtered on this kind of machine"
    return Check(name="sandbox", ok=True, needed=True, found=f"namespaces and overlay work{filtered}")


def _limits() -> Check:
    from patchgym.sandbox.limits import find_mechanism

    kind = find_mechanism().kind
    if kind == "rlimit":
        return Check(
            name="limits",
            ok=False,
            needed=False,
            found="rlimits alone: memory is bounded for each process, not for a sandbox",
            mend="Give patchgym a control group of its own: systemd-run --user --scope -p Delegate=yes patchgym ...",
        )
    return Check(name="limits", ok=True, needed=False, found=f"{kind} holds memory and processes of a whole sandbox")


def _docker() -> Check:
    from patchgym.sandbox.docker import Engine, check_docker

    try:
        engine = Engine()
        check_docker()
        version = engine.check().get("ServerVersion")
        engine.close()
    except PatchgymError as error:
        found = f"for --sandbox docker and tasks in images: {error.what}. {error.why}"
        return Check(name="docker", ok=False, needed=False, found=found, mend=error.mend)
    return Check(name="docker", ok=True, needed=False, found=f"Docker {version} at {engine.host}")


def _uv() -> Check:
    import uv

    try:
        return Check(name="uv", ok=True, needed=True, found=uv.find_uv_bin())
    except FileNotFoundError as error:
        return Check(name="uv", ok=False, needed=True, found=str(error), mend=f"{sys.executable} -m pip install uv")


def _pip() -> Check:
    if importlib.util.find_spec("pip") is not None:
        return Check(name="pip", ok=True, needed=True, found="fetches pinned packages")
    return Check(
        name="pip",
        ok=False,
        needed=True,
        found="not in this interpreter",
        mend=f"{sys.executable} -m ensurepip --upgrade",
    )


def _cache() -> Check:
    root = cache_root()
    place = next(path for path in (root, *root.parents) if path.exists())
    free = shutil.disk_usage(place).free / 1e9
    found = f"{root}, {free:.0f} GB free"
    if not os.access(place, os.W_OK):
        return Check(name="cache", ok=False, needed=True, found=f"{found}, not writable", mend="Set PATCHGYM_CACHE.")
    if free < _FREE_GB:
        return Check(
            name="cache",
            ok=False,
            needed=True,
            found=found,
            mend=f"Free {_FREE_GB:.0f} GB there, or set PATCHGYM_CACHE.",
        )
    return Check(name="cache", ok=True, needed=True, found=found)


def _training() -> Check:
    missing = [name for name in ("torch", "transformers", "peft", "gguf") if importlib.util.find_spec(name) is None]
    if missing:
        return Check(
            name="training",
            ok=False,
            needed=True,
            found=f"without {', '.join(missing)} there is no local model and no update",
            mend="pip install 'patchgym[train]'",
        )
    return Check(name="training", ok=True, needed=True, found="torch, transformers, peft, gguf")


def _machine() -> Check:
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    gpus = len(list(Path("/dev").glob("nvidia[0-9]*")))
    return Check(name="machine", ok=True, needed=False, found=f"{cores} cores, {memory:.0f} GiB, {gpus} NVIDIA GPUs")
