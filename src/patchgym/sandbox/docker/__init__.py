"""Sandboxes in containers of a Docker engine."""

from patchgym.sandbox.docker.engine import Engine
from patchgym.sandbox.docker.machine import check_docker
from patchgym.sandbox.docker.sandbox import DockerSandbox, DockerSandboxes

__all__ = ["DockerSandbox", "DockerSandboxes", "Engine", "check_docker"]
