"""A Docker engine of one's own, for as long as it is wanted: where no service runs one, as in many a CI."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from patchgym.errors import PrerequisiteError
from patchgym.sandbox.docker.engine import Engine

_START_S = 60.0
_GROUPS = Path("/sys/fs/cgroup")


@contextmanager
def own_engine() -> Iterator[str]:
    """The address of an engine that is started now, in a temporary folder and without a network, and gone afterwards
    with its processes, mounts and control groups. Root only.

    Raises:
        PrerequisiteError: there is no ``dockerd``, or it does not start.
    """
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        raise PrerequisiteError(
            "A Docker engine needs dockerd, and root", mend="Run as root: apt-get install docker.io"
        )
    folder = Path(tempfile.mkdtemp(prefix="patchgym-dockerd-"))
    traces = [Path("/run/docker"), Path("/run/containerd"), _GROUPS / "docker"]
    traces += [group / "docker" for group in _GROUPS.glob("*") if group.is_dir() and group.name != "docker"]
    ours = [path for path in traces if not path.exists()]
    host = f"unix://{folder}/socket"
    command = ["dockerd", f"--data-root={folder}/data", f"--exec-root={folder}/run", f"--pidfile={folder}/pid"]
    command += ["--host", host, "--bridge=none", "--iptables=false", "--ip6tables=false"]
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        _wait(daemon, host, folder / "log")
        yield host
    finally:
        daemon.terminate()
        daemon.wait()
        for line in reversed(Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()):
            if line.split()[4].startswith(f"{folder}/"):
                subprocess.run(["umount", line.split()[4]], check=False)
        for path in ours:
            if path.is_relative_to(_GROUPS):
                with suppress(OSError):
                    path.rmdir()
            else:
                shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(folder)


def _wait(daemon: "subprocess.Popen[bytes]", host: str, log: Path) -> None:
    engine = Engine(host)
    until = time.monotonic() + _START_S
    try:
        while True:
            try:
                engine.check()
                return
            except PrerequisiteError as error:
                if daemon.poll() is not None or time.monotonic() > until:
                    said = log.read_text(errors="replace")[-1500:]
                    raise PrerequisiteError("dockerd did not start", why=said) from error
            time.sleep(0.1)
    finally:
        engine.close()
