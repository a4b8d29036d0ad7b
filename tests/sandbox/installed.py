"""Debian's Docker engine, put on a machine of continuous integration where it lacks."""

import os
import shutil
import subprocess


def install_docker() -> None:
    """Install ``docker.io`` where this is a machine that only runs tests (``CI`` is set), and there is none."""
    if os.environ.get("CI") and os.geteuid() == 0 and shutil.which("dockerd") is None and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update", "-q"], ["install", "-y", "-q", "--no-install-recommends", "docker.io"]):
            subprocess.run(["apt-get", *command], env=environment, capture_output=True, check=False, timeout=600)
