"""One Docker engine, by its API (https://docs.docker.com/reference/api/engine/)."""

import json
import os
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpcore2
import httpx2

from patchgym.errors import PrerequisiteError, SandboxError

_DEFAULT = "unix:///var/run/docker.sock"
_OLDEST = (1, 41)
_PATIENCE_S = 300.0
_MEND = "Install it (apt-get install docker.io), start it (systemctl start docker), or set DOCKER_HOST to its socket."


@dataclass(frozen=True)
class Attached:
    """The streams of a command: a socket that carries them all, and what came before anybody read from it."""

    connection: socket.socket
    first: bytes


class Engine:
    """Calls of one engine on this machine. Every method blocks; threads may share it."""

    def __init__(self, host: str | None = None) -> None:
        """``host`` is a ``unix://`` address; None for ``DOCKER_HOST``, or else the usual one.

        Raises:
            PrerequisiteError: it is an engine of another machine.
        """
        self.host = host or os.environ.get("DOCKER_HOST") or _DEFAULT
        if not self.host.startswith("unix://"):
            raise PrerequisiteError(
                f"The Docker engine at {self.host} is not on this machine",
                why="A sandbox's files lie in folders of this machine, which its engine mounts.",
                mend="Run patchgym where the engine runs, with DOCKER_HOST=unix://SOCKET.",
            )
        transport = httpx2.HTTPTransport(uds=self.host.removeprefix("unix://"))
        self._client = httpx2.Client(transport=transport, base_url="http://engine", timeout=_PATIENCE_S)

    def check(self) -> dict[str, Any]:
        """What the engine says of itself (``/info``).

        Raises:
            PrerequisiteError: it does not answer, is too old, or runs no Linux containers.
        """
        try:
            version = self._client.get("/version").json()
            info: dict[str, Any] = self._client.get("/info").json()
        except (httpx2.HTTPError, ValueError) as error:
            raise PrerequisiteError(f"No Docker engine answers at {self.host}", why=str(error), mend=_MEND) from error
        spoken = tuple(int(part) for part in str(version.get("ApiVersion", "0.0")).split("."))
        if spoken < _OLDEST:
            raise PrerequisiteError(
                f"The Docker engine at {self.host} is too old",
                why=f"It speaks version {version.get('ApiVersion')} of its API.",
                mend="Install Docker 20.10 or later.",
            )
        if info.get("OSType") != "linux":
            raise PrerequisiteError(f"The Docker engine at {self.host} runs no Linux containers")
        return info

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: bytes | None = None,
        absent: bool = False,
        **query: str,
    ) -> Any:
        """Make one call; what it answers. ``body`` is sent as JSON, ``content`` as it is. With ``absent``, None where
        there is no such thing, or it is gone already.

        Raises:
            SandboxError: the engine refused, or is gone.
        """
        try:
            answer = self._client.request(method, path, params=query, json=body, content=content)
        except httpx2.HTTPError as error:
            raise SandboxError(
                f"The Docker engine at {self.host} does not answer", why=str(error), mend=_MEND
            ) from error
        if absent and answer.status_code in (404, 409):
            return None
        if not answer.is_success:
            raise SandboxError(f"The Docker engine refused: {method} {path.split('?')[0]}", why=_said(answer))
        text = answer.text.strip()
        if "\n" not in text:
            return json.loads(text) if text else None
        lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        refused = next((line["error"] for line in lines if "error" in line), None)
        if refused is not None:  # a pull or a build that fails has begun to answer before
            raise SandboxError(f"The Docker engine failed: {method} {path}", why=_tail(lines, refused))
        return lines

    def attach(self, path: str) -> Attached:
        """Start a command that was made ready, and take over its streams. The caller closes the connection.

        Raises:
            SandboxError: the engine refused, or is gone.
        """
        headers = {"Connection": "Upgrade", "Upgrade": "tcp"}
        request = self._client.build_request("POST", path, json={"Detach": False, "Tty": False}, headers=headers)
        try:
            answer = self._client.send(request, stream=True)
        except httpx2.HTTPError as error:
            raise SandboxError(
                f"The Docker engine at {self.host} does not answer", why=str(error), mend=_MEND
            ) from error
        try:
            if answer.status_code != 101:
                answer.read()
                raise SandboxError(f"The Docker engine refused: POST {path}", why=_said(answer))
            stream = answer.extensions["network_stream"]
            first = b""
            with suppress(httpcore2.ReadTimeout):
                first = stream.read(1 << 16, timeout=0.0001)  # what came together with the answer
            connection: socket.socket = stream.get_extra_info("socket").dup()
        finally:
            answer.close()
        return Attached(connection, first)

    def _silent(self, error: httpx2.HTTPError) -> SandboxError:
        return SandboxError(f"The Docker engine at {self.host} does not answer", why=str(error), mend=_MEND)

    def close(self) -> None:
        """Let go of its connections."""
        self._client.close()


def filters(**wanted: Iterable[str]) -> str:
    """The ``filters`` parameter of a list."""
    return json.dumps({name: list(values) for name, values in wanted.items()})


def _said(answer: httpx2.Response) -> str:
    try:
        said = answer.json()
    except ValueError:
        said = {}
    return str(said.get("message") if isinstance(said, Mapping) else "") or answer.text.strip()[-500:]


def _tail(lines: list[dict[str, Any]], refused: str) -> str:
    told = "".join(str(line.get("stream", "")) for line in lines).strip()[-800:]
    return f"{told}\n{refused}".strip()
