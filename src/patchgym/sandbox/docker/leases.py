"""Whose containers these are: labels with the owner's lease, and the removal of what a killed owner left.

The lease is the lock on the owner's scratch folder (``patchgym.sandbox.scratch``), which the kernel drops when the
owner is gone. A container says in its labels where that folder is, and on which machine and in which mount namespace
that path holds, so that nobody takes for gone what he merely cannot see.
"""

import os
from pathlib import Path
from typing import Any

from patchgym.sandbox.docker.engine import Engine, filters
from patchgym.sandbox.scratch import is_abandoned

_LEASE, _VIEW = "patchgym.lease", "patchgym.view"


def labels(folder: Path) -> dict[str, str]:
    """The labels of what belongs to the owner of a scratch folder."""
    return {_LEASE: str(folder), _VIEW: _view()}


def sweep(engine: Engine) -> None:
    """Remove the containers and volumes whose owner is gone.

    Raises:
        SandboxError: the engine does not answer.
    """
    for container in engine.call("GET", "/containers/json", all="1", filters=filters(label=[_LEASE])):
        if _is_abandoned(container.get("Labels") or {}):
            engine.call("DELETE", f"/containers/{container['Id']}", absent=True, force="1", v="1")
    for volume in engine.call("GET", "/volumes", filters=filters(label=[_LEASE]))["Volumes"] or ():
        if _is_abandoned(volume.get("Labels") or {}):
            engine.call("DELETE", f"/volumes/{volume['Name']}", absent=True)


def _is_abandoned(said: dict[str, Any]) -> bool:
    return said.get(_VIEW) == _view() and is_abandoned(Path(str(said[_LEASE])))


def _view() -> str:
    """This machine since its start, and what this process sees of its files."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {os.readlink('/proc/self/ns/mnt')}"
