"""One HTTP endpoint, asked with bounded patience: tries, pauses, time-outs and sizes all have a limit."""

import asyncio
import json
import random
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from patchgym.errors import ConfigError, ContextLengthError, EndpointError, EndpointRetryable

if TYPE_CHECKING:
    import httpx2

Sleep = Callable[[float], Awaitable[None]]

_TRIES, _FIRST_PAUSE_S, _LONGEST_PAUSE_S, _CONNECT_S = 3, 1.0, 60.0, 10.0
_MOST_BYTES = 8_000_000
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_TOO_LONG = re.compile(
    r"context.?(length|size|window)|maximum context|too many (input )?tokens|(prompt|input) (is )?too long",
    re.IGNORECASE,
)


class EndpointRefusal(EndpointError):
    """The endpoint refused a request with a status that another try would not change."""

    def __init__(self, what: str, *, why: str, status: int) -> None:
        super().__init__(what, why=why)
        self.status = status


class Endpoint:
    """JSON requests to one base URL. The key goes into the request's header and nowhere else: texts of the endpoint
    that repeat it are masked."""

    def __init__(self, url: str, key: str | None, *, timeout_s: float, sleep: Sleep | None = None) -> None:
        """``timeout_s`` bounds one try, from connecting to the last byte.

        Raises:
            ConfigError: ``url`` is no http or https URL.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url!r} is no http URL", mend="Give one such as http://127.0.0.1:8000/v1.")
        self.url = url.rstrip("/")
        self.losses = 0
        """How often a connection could not be made, or broke: the server may be another one since."""
        self._key = key
        self._timeout_s = timeout_s
        self._sleep: Sleep = sleep or asyncio.sleep
        self._local = parts.hostname in _LOOPBACK
        self._client: tuple[asyncio.AbstractEventLoop, httpx2.AsyncClient] | None = None

    @property
    def has_key(self) -> bool:
        """Whether a key is sent."""
        return self._key is not None

    async def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        tries: int = _TRIES,
        final: Collection[int] = (),
    ) -> str:
        """The body of a successful answer, as text. ``final`` are statuses that would pass elsewhere and do not here:
        they count as a refusal.

        Raises:
            ContextLengthError: it was refused because the context is too long.
            EndpointRetryable: unreachable, stalled, dropped, 429 or 5xx at the last of ``tries``.
            EndpointRefusal: any other status that is no success.
            EndpointError: the body is longer than 8 MB.
        """
        for left in reversed(range(tries)):
            try:
                return await self._once(method, path, body, final)
            except _Passing as passing:
                if not left:
                    raise EndpointRetryable(
                        f"The model endpoint {self.url} does not answer",
                        why=f"{passing.why} ({tries} {'try' if tries == 1 else 'tries'}).",
                        mend="Check that the server runs and has the capacity; the run can be resumed.",
                    ) from passing
                pause = _FIRST_PAUSE_S * 2 ** (tries - 1 - left) * random.uniform(0.75, 1.25)
                await self._sleep(min(passing.after if passing.after is not None else pause, _LONGEST_PAUSE_S))
        raise AssertionError("tries is at least 1")

    async def close(self) -> None:
        """Close the connections. May be called twice."""
        if self._client is not None:
            loop, client = self._client
            self._client = None
            if loop is asyncio.get_running_loop():
                await client.aclose()

    async def _once(
        self, method: str, path: str, body: Mapping[str, object] | None, final: Collection[int] = ()
    ) -> str:
        import httpx2

        content = json.dumps(body).encode() if body is not None else None
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._connection().stream(method, self.url + path, content=content) as response,
            ):
                received = bytearray()
                async for chunk in response.aiter_bytes():
                    received += chunk
                    if len(received) > _MOST_BYTES:
                        raise EndpointError(
                            f"{self.url} answers with more than {_MOST_BYTES // 1_000_000} MB",
                            mend="Check that the base URL is that of a model.",
                        )
        except TimeoutError as error:
            raise _Passing(f"No answer within {self._timeout_s:g} s") from error
        except httpx2.TimeoutException as error:
            raise _Passing(f"No connection within {_CONNECT_S:g} s") from error
        except httpx2.TransportError as error:
            self.losses += 1
            raise _Passing(f"{type(error).__name__}: {error}") from error
        except httpx2.DecodingError as error:
            raise EndpointError(f"{self.url} answers with a damaged body", why=str(error)) from error
        text = received.decode("utf-8", "replace")
        if not response.is_success:
            raise self._failure(response.status_code, text, response.headers, final)
        return text

    def _connection(self) -> "httpx2.AsyncClient":
        """The client of the running event loop; connections cannot outlive theirs."""
        import httpx2

        loop = asyncio.get_running_loop()
        if self._client is None or self._client[0] is not loop:
            client = httpx2.AsyncClient(
                headers={"content-type": "application/json"}
                | ({"authorization": f"Bearer {self._key}"} if self._key else {}),
                timeout=httpx2.Timeout(None, connect=_CONNECT_S),
                limits=httpx2.Limits(max_connections=None),
                trust_env=not self._local,  # a proxy of the environment has no way to this machine's own servers
            )
            self._client = (loop, client)
        return self._client[1]

    def _failure(self, status: int, text: str, headers: Mapping[str, str], final: Collection[int]) -> "Exception":
        """What a status that is no success means."""
        message = _message(text.replace(self._key, "***") if self._key else text)
        why = f"HTTP {status}: {message}" if message else f"HTTP {status}"
        if (status == 429 or status >= 500) and status not in final:
            return _Passing(why, _seconds(headers.get("retry-after")))
        if status in (400, 413, 422) and _TOO_LONG.search(message):
            return ContextLengthError("The conversation no longer fits the model", why=why)
        return EndpointRefusal(f"The model endpoint {self.url} refuses the request", why=why, status=status)


class _Passing(Exception):
    """A try failed in a way that may pass; ``after`` are the seconds that the endpoint asked to wait."""

    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.after = after


def _message(text: str) -> str:
    """What an error body says: the message inside it, else its start; one line."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    for key in ("error", "message"):
        found = found.get(key, found) if isinstance(found, dict) else found
    return " ".join((found if isinstance(found, str) else text).split())[:400]


def _seconds(retry_after: str | None) -> float | None:
    """``Retry-After`` as seconds from now: a number or a date."""
    if retry_after is None:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return None
