"""Services beside a sandbox: each in a sandbox of its own, all of them in one network that nothing else is in."""

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from patchgym.errors import PrerequisiteError, SandboxError
from patchgym.sandbox.protocol import Ending, ExecResult, Sandbox, SandboxSpec, ServiceSpec

if TYPE_CHECKING:
    from patchgym.sandbox.layered import LayeredSandbox

_SETUP_S, _HEALTH_S, _PAUSE_S = 300.0, 10.0, 0.05
_LOG = "/tmp/service.log"
_LOG_BYTES = 2000


class Network(ABC):
    """A network with nothing but a loopback, which several sandboxes are in."""

    @abstractmethod
    def close(self) -> None:
        """Let go of it. Blocking; may be called twice."""


class Templates:
    """Services made ready, once for each: their sandboxes start as forks of these."""

    def __init__(self, tree: str, make: "Callable[[SandboxSpec], LayeredSandbox]") -> None:
        """``tree`` is an empty tree; ``make`` makes a sandbox. Blocking."""
        self._tree, self._make = tree, make
        self._ready: dict[ServiceSpec, LayeredSandbox] = {}
        self._locks: dict[ServiceSpec, threading.Lock] = {}

    def fork(self, service: ServiceSpec) -> "LayeredSandbox":
        """A new sandbox of a service, with all that its setup left. Blocking.

        Raises:
            SandboxError: the setup failed.
            PrerequisiteError: its programs are not on this machine.
        """
        with self._locks.setdefault(service, threading.Lock()):
            if service not in self._ready:
                self._ready[service] = asyncio.run(self._prepared(service))
            return self._ready[service].fork_now()

    def close(self) -> None:
        """Remove them. Blocking."""
        while self._ready:
            self._ready.popitem()[1].discard()

    async def _prepared(self, service: ServiceSpec) -> "LayeredSandbox":
        made = self._make(SandboxSpec(tree=self._tree, environment=service.environment, image=service.image))
        try:
            for path, text in service.files:
                await made.write(path, text.encode())
            if service.setup:
                done = await made.exec(service.setup, timeout_s=_SETUP_S)
                _check(service, "setup", done)
            await made.rest()
        except BaseException:
            await made.close()
            raise
        return made


class Company:
    """The services beside one sandbox, and the network that they share with it."""

    def __init__(self, services: tuple[ServiceSpec, ...], templates: Templates, connect: Callable[[], Network]) -> None:
        """``connect`` makes a network. Blocking."""
        self.network: Network | None = None
        self._services, self._templates, self._connect = services, templates, connect
        self._members: list[Sandbox] = []

    def another(self) -> "Company":
        """The same services, not started yet, for another sandbox."""
        return Company(self._services, self._templates, self._connect)

    async def start(self) -> Network:
        """Start them and wait until all can be used; the network. When one cannot, nothing is left.

        Raises:
            SandboxError: one does not start, or is not ready in time; the end of what it wrote is in the error.
            PrerequisiteError: its programs are not on this machine.
        """
        try:
            self.network = await asyncio.to_thread(self._connect)
            async with asyncio.TaskGroup() as group:
                for service in self._services:
                    group.create_task(self._begin(service, self.network))
        except ExceptionGroup as errors:
            await self.close()
            raise errors.exceptions[0] from None
        except BaseException:
            await self.close()
            raise
        return self.network

    async def close(self) -> None:
        """End them. May be called twice."""
        while self._members:
            await self._members.pop().close()
        if self.network is not None:
            await asyncio.to_thread(self.network.close)

    async def _begin(self, service: ServiceSpec, network: Network) -> None:
        sandbox = await asyncio.to_thread(self._templates.fork, service)
        sandbox.network = network
        self._members.append(sandbox)
        until = time.monotonic() + service.ready_s
        line = ["sh", "-c", f'exec "$@" >{_LOG} 2>&1 &', "service", *service.command]
        _check(service, "start", await sandbox.exec(line, keep=True))
        while True:
            done = await sandbox.exec(service.health, timeout_s=_HEALTH_S)
            if done.exit_code == 0:
                return
            if time.monotonic() > until:
                log = (await sandbox.exec(["tail", "-c", str(_LOG_BYTES), _LOG])).stdout or done.stderr
                raise SandboxError(
                    f"The service {service.name} is not ready after {service.ready_s:.0f} seconds",
                    why=log.decode(errors="replace").strip(),
                )
            await asyncio.sleep(_PAUSE_S)


def _check(service: ServiceSpec, part: str, done: ExecResult) -> None:
    """Raise what went wrong with a part of a service."""
    said = (done.stderr or done.stdout).decode(errors="replace").strip()[-_LOG_BYTES:]
    if done.ending is Ending.NOT_FOUND and service.package:
        raise PrerequisiteError(
            f"The service {service.name} is not on this machine",
            why=said,
            mend=f"Run as root: apt-get install {service.package}",
        )
    if done.exit_code != 0:
        raise SandboxError(f"The {part} of the service {service.name} failed ({done.ending})", why=said)
