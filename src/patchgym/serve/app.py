"""The operations as an ASGI application, and what guards them.

Every request takes a place (there are so many), needs a token where there are any, and has a body of bounded size in
bounded time. Without tokens only the loopback is listened to: then the Host must name it, or a page elsewhere could
have its own name resolve to it (DNS rebinding). Pages of other sites are refused in any case.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib import resources
from typing import TypeVar

import jinja2
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from patchgym.errors import PatchgymError
from patchgym.records import Record
from patchgym.serve.desk import MOST_LISTED, Desk
from patchgym.serve.keys import Keys
from patchgym.serve.openapi import openapi, refusals_of
from patchgym.serve.operations import OPERATIONS, Operation
from patchgym.serve.problems import KINDS, Refused
from patchgym.serve.sheets import Graded, Health, Reset, StepDone, StepWanted

_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_OPEN = ("/", "/style.css", "/openapi.json", *(operation.path for operation in OPERATIONS if operation.open))
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_LISTED = 50
_R = TypeVar("_R", bound=Record)
_log = logging.getLogger("patchgym.serve")


def make_app(desk: Desk, keys: Keys) -> Starlette:
    """The application over sessions and the tokens of their clients."""
    doing = _Doing(desk)
    page = _docs_page(tokens=bool(keys))
    document = json.dumps(openapi(tokens=bool(keys)), indent=1)
    style = _asset("style.css")
    routes = [
        Route(operation.path, partial(_answered, operation, getattr(doing, operation.name)), methods=[operation.method])
        for operation in OPERATIONS
    ]
    routes += [
        Route("/", partial(_same, page, "text/html")),
        Route("/style.css", partial(_same, style, "text/css")),
        Route("/openapi.json", partial(_same, document, "application/json")),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(_Guard, desk=desk, keys=keys)],
        exception_handlers={PatchgymError: _refused, HTTPException: _unknown, Exception: _broken},
    )


class _Guard:
    """Lets through only what may be done, and so much of it at once."""

    def __init__(self, app: ASGIApp, desk: Desk, keys: Keys) -> None:
        self._app, self._desk, self._keys = app, desk, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        try:
            with self._desk.request():
                self._check(scope, Headers(scope=scope))
                await self._app(scope, receive, guarded)
        except Refused as refused:
            await refused.response()(scope, receive, guarded)

    def _check(self, scope: Scope, headers: Headers) -> None:
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        if not self._keys and host.rpartition(":")[0] not in _HOSTS and host not in _HOSTS:
            raise Refused("wrong_host")
        if origin is not None and origin.partition("://")[2].lower() != host:
            raise Refused("other_origin")
        client = self._keys.client(headers.get("authorization"))
        if client is None and scope["path"] not in _OPEN:
            raise Refused("unauthorized")
        scope.setdefault("state", {})["client"] = client


class _Doing:
    """What the operations do, each by its name."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def list_tasks(self, request: Request) -> Record:
        text = request.query_params.get("limit", str(_LISTED))
        limit = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0
        if not 1 <= limit <= MOST_LISTED:
            raise Refused("invalid", f"limit is no whole number from 1 to {MOST_LISTED}.")
        return self._desk.listed(request.query_params.get("after"), limit)

    async def get_task(self, request: Request) -> Record:
        return self._desk.sheet(request.path_params["task"])

    async def reset(self, request: Request) -> Record:
        wanted = await self._body(request, Reset)
        return await self._desk.open(_client(request), wanted)

    async def get_session(self, request: Request) -> Record:
        return self._desk.session(_client(request), request.path_params["session"]).state

    async def step(self, request: Request) -> StepDone:
        session = self._desk.session(_client(request), request.path_params["session"])
        wanted = await self._body(request, StepWanted)
        with self._desk.timed("step"):
            return await session.step(wanted)

    async def grade(self, request: Request) -> Graded:
        session = self._desk.session(_client(request), request.path_params["session"])
        with self._desk.timed("grade"):
            return await session.grade()

    async def close(self, request: Request) -> Record:
        return await self._desk.close(_client(request), request.path_params["session"])

    async def stats(self, request: Request) -> Record:
        return self._desk.stats(_client(request))

    async def health(self, request: Request) -> Record:
        return Health(status="ok")

    async def _body(self, request: Request, model: type[_R]) -> _R:
        """The body as a record.

        Raises:
            Refused: it is no JSON, too large, too slow or not as it must be.
        """
        rules = self._desk.rules
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refused("not_json")
        told = request.headers.get("content-length", "0")
        if not told.isdigit() or len(told) > 18 or int(told) > rules.body_bytes:
            raise Refused("too_large", f"It may have {rules.body_bytes} bytes.")
        body = bytearray()
        try:
            async with asyncio.timeout(rules.body_seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > rules.body_bytes:
                        raise Refused("too_large", f"It may have {rules.body_bytes} bytes.")
        except TimeoutError:
            raise Refused("too_slow", f"It has {rules.body_seconds:g} seconds.") from None
        except ClientDisconnect:
            raise Refused("too_slow", "The connection was closed.") from None
        try:
            return model.model_validate_json(bytes(body))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"])[:200]
            raise Refused("invalid", ": ".join(filter(None, (place, first["msg"][:500])))) from None


async def _answered(operation: Operation, do: Callable[[Request], Awaitable[Record]], request: Request) -> Response:
    answer = await do(request)
    return Response(answer.model_dump_json(), operation.status, media_type="application/json")


async def _same(text: str, media_type: str, request: Request) -> Response:
    return Response(text, media_type=media_type)


def _client(request: Request) -> str:
    client: str = request.state.client
    return client


async def _refused(request: Request, error: Exception) -> Response:
    if not isinstance(error, Refused):  # its words are for whoever runs the server
        _log.error("%s %s: %s", request.method, request.url.path, error)
        error = Refused("unavailable")
    return error.response()


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Refused("no_method" if error.status_code == 405 else "no_address").response()


async def _broken(request: Request, error: Exception) -> Response:
    return Refused("broken").response()


def _docs_page(*, tokens: bool) -> str:
    """The operations for a person to read: no script, nothing from elsewhere."""
    document = openapi(tokens=tokens)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True)
    refusals: Mapping[str, list[str]] = {
        operation.name: refusals_of(operation, tokens=tokens) for operation in OPERATIONS
    }
    page = environment.from_string(_asset("docs.html"))
    return page.render(
        document=document, operations=OPERATIONS, refusals=refusals, kinds=KINDS, tokens=tokens, type_of=_type_of
    )


def _type_of(schema: Mapping[str, object]) -> str:
    """A JSON Schema of a field in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    options = schema.get("anyOf")
    if isinstance(options, list):
        return " or ".join(_type_of(option) for option in options)
    items = schema.get("items")
    if isinstance(items, dict):
        return f"list of {_type_of(items)}"
    return str(schema.get("type", schema.get("const", "any")))


def _asset(name: str) -> str:
    return (resources.files("patchgym.serve") / "pages" / name).read_text(encoding="utf-8")
