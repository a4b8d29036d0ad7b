"""The images that containers are made from: one with nothing of its own for environments of this machine, those that a
task names, those that are built from its Dockerfile."""

import hashlib
import io
import tarfile
from collections.abc import Iterable

from patchgym.errors import SandboxError
from patchgym.sandbox.docker.engine import Engine
from patchgym.sandbox.system import Link

OURS = "patchgym"
"""The repository of every image that is made here."""
_FOLDERS = ("usr", "etc", "proc", "dev", "sys", "tmp", "run", "workspace")


def bare_image(engine: Engine, links: Iterable[Link]) -> str:
    """The name of an image that holds empty folders and symbolic links; it is made where there is none yet.

    Raises:
        SandboxError: the engine refused.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in _FOLDERS:
            archive.addfile(_entry(name, tarfile.DIRTYPE))
        for link in links:
            entry = _entry(link.place.lstrip("/"), tarfile.SYMTYPE)
            entry.linkname = link.target
            archive.addfile(entry)
    content = packed.getvalue()
    tag = hashlib.sha256(content).hexdigest()[:16]
    name = f"{OURS}/bare:{tag}"
    if engine.call("GET", f"/images/{name}/json", absent=True) is None:
        engine.call("POST", "/images/create", content=content, fromSrc="-", repo=f"{OURS}/bare", tag=tag)
    return name


def named_image(engine: Engine, reference: str) -> str:
    """An image by its reference; it is pulled where the engine does not hold it.

    Raises:
        SandboxError: there is no such image, or it cannot be pulled.
    """
    if engine.call("GET", f"/images/{reference}/json", absent=True) is None:
        tagged = "@" in reference or ":" in reference.rpartition("/")[2]
        engine.call("POST", "/images/create", fromImage=reference if tagged else f"{reference}:latest")
    return reference


def built_image(engine: Engine, dockerfile: str) -> str:
    """The name of the image of a Dockerfile that needs no files beside it; it is built where there is none yet. Its
    steps run as the engine runs them, with a network.

    Raises:
        SandboxError: it cannot be built; the end of what the build said is in the error.
    """
    name = f"{OURS}/task:{hashlib.sha256(dockerfile.encode()).hexdigest()[:16]}"
    if engine.call("GET", f"/images/{name}/json", absent=True) is None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            text = dockerfile.encode()
            entry = _entry("Dockerfile", tarfile.REGTYPE)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
        engine.call("POST", "/build", content=packed.getvalue(), t=name, rm="1", forcerm="1")
        if engine.call("GET", f"/images/{name}/json", absent=True) is None:
            raise SandboxError("A Dockerfile made no image", why="Its build ended without an error and without one.")
    return name


def _entry(name: str, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, 0o1777 if name == "tmp" else 0o755
    return entry
