"""On a socket, until Ctrl-C or SIGTERM; every sandbox is closed then."""

import asyncio
import errno
import ipaddress
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import cast

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from patchgym.errors import UsageError
from patchgym.serve.desk import Desk

HEAD_S = 10.0
"""Wall seconds in which the head of a request must be there."""
TAKE_S = 30.0
"""Wall seconds in which a client must go on reading an answer."""
MOST_CONNECTIONS = 2048
_GRACE_S = 2
_BACKLOG = 256


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``. A name other than ``localhost`` may be anybody's."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes a free one.

    Raises:
        UsageError: there is no such address here, or the port is taken or may not be used.
    """
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"{host} is no address to listen on", why=str(error), mend="Try --host 127.0.0.1.") from error
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(place)
        found.listen(_BACKLOG)
    except OSError as error:
        found.close()
        taken = error.errno == errno.EADDRINUSE
        raise UsageError(
            f"{host} port {port} cannot be listened on",
            why="Another program listens there." if taken else str(error),
            mend="Choose another --port; 0 takes a free one.",
        ) from error
    return found


def address_of(on: socket.socket) -> str:
    """The address of a listening socket as a client writes it."""
    host, port = on.getsockname()[:2]
    return f"http://[{host}]:{port}" if on.family is socket.AF_INET6 else f"http://{host}:{port}"


async def serve(
    app: Starlette, desk: Desk, on: socket.socket, ready: Callable[[], None], ended: asyncio.Event | None = None
) -> None:
    """Serve until a signal comes, or ``ended`` is set (then no signal is heeded). ``ready`` is called once requests are
    answered. Requests under way have two seconds to end; then every session is closed."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        http=_Impatient,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_GRACE_S,
        server_header=False,
    )
    server = _Server(config, ready)
    loop = asyncio.get_running_loop()
    if ended is None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, server.stop)
        await _until_closed(server, desk, on)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        return
    waiting = asyncio.create_task(ended.wait())
    waiting.add_done_callback(lambda task: server.stop())
    await _until_closed(server, desk, on)


async def _until_closed(server: "_Server", desk: Desk, on: socket.socket) -> None:
    async with desk:
        await server.serve(sockets=[on])


class _Server(uvicorn.Server):
    """Signals are the caller's: uvicorn would raise them again before the sessions are closed."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._ready()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    def stop(self) -> None:
        """End serving."""
        self.should_exit = True


class _Impatient(H11Protocol):
    """A connection, one of so many, on which the head of a request must come in time and answers must be taken."""

    _late: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
            return
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._calm()
        if self._stuck is not None:
            self._stuck.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(TAKE_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()

    def _watch(self) -> None:
        """Time runs while no request is being answered."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        if cycle is not None and not cycle.response_complete:
            self._calm()
        elif self._late is None:
            self._late = self.loop.call_later(HEAD_S, self.transport.abort)

    def _calm(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
