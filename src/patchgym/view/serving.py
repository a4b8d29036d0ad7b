"""Serving the pages on this machine's loopback, until Ctrl-C."""

import errno
import secrets
import socket
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette

from patchgym.errors import UsageError

HOST = "127.0.0.1"
FIRST_PORT = 8421
_TRIES = 40


def new_token() -> str:
    """A token that nobody can guess: 192 random bits."""
    return secrets.token_urlsafe(24)


def listen(port: int | None) -> socket.socket:
    """A socket that listens on a port of the loopback; without one, on the first free port from 8421 on.

    Raises:
        UsageError: the port is taken, or may not be used.
    """
    wanted = [port] if port is not None else [*range(FIRST_PORT, FIRST_PORT + _TRIES), 0]
    for number in wanted:
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((HOST, number))
            found.listen(64)
        except OSError as error:
            found.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            if port is not None:
                why = "Another program listens there." if error.errno == errno.EADDRINUSE else "It needs more rights."
                raise UsageError(
                    f"Port {port} cannot be used", why=why, mend="Leave --port out: a free one is found."
                ) from error
        else:
            return found
    raise AssertionError("port 0 is always free")


def serve(app: Starlette, on: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve until the process is interrupted. ``ready`` is called with the address once pages are answered.

    Raises:
        KeyboardInterrupt: the process was interrupted; connections are closed.
    """
    settings = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=1, ws="none"
    )
    port = on.getsockname()[1]
    server = _Server(settings, lambda: ready(f"http://{HOST}:{port}"))
    server.run(sockets=[on])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._ready()
