"""The pages as an ASGI application, and what guards them.

The first part of every address is a token that is drawn when the server starts; without it nothing is answered. The
Host must name this machine's loopback, or a page elsewhere could have its own name resolve to it (DNS rebinding). Pages
may load nothing from outside, run no script but the one that is served here, and be framed by nobody. Everything is GET
but the answers of a spot check.
"""

import hmac
from collections.abc import Mapping
from typing import cast
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from patchgym.errors import PatchgymError, UsageError
from patchgym.view.opened import OpenedRun
from patchgym.view.pages import PAGES, opened_check, runs_page
from patchgym.view.query import Query, address
from patchgym.view.site import Answer, Site, asset

_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_MOST_BODY = 64 << 10
_ASSETS = {
    "style.css": "text/css; charset=utf-8",
    "script.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_ANSWERS = ("yes", "no", "unsure")


def make_app(site: Site, token: str) -> Starlette:
    """The application. ``site.root`` must be ``/TOKEN``."""
    pages = _Pages(site)
    routes = [
        Route("/assets/{name}", pages.asset),
        Route("/", pages.runs),
        Route("/run/{run}/", pages.page),
        Route("/run/{run}/state", pages.state),
        Route("/run/{run}/spotcheck", pages.answer, methods=["POST"]),
        Route("/run/{run}/{page}", pages.page),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(_Guard, token=token)],
        exception_handlers={PatchgymError: pages.error, HTTPException: pages.unknown},
    )


class _Guard:
    """Lets through only who has the token and came to this machine, and tells browsers what pages may do."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        headers = Headers(scope=scope)
        first, _, rest = scope["path"].lstrip("/").partition("/")
        refused = self._refusal(headers, first, scope["method"])
        if refused is not None:
            await refused(scope, receive, guarded)
            return
        inner = {**scope, "path": f"/{rest}", "root_path": "", "raw_path": None}
        await self._app(inner, receive, guarded)

    def _refusal(self, headers: Headers, token: str, method: str) -> Response | None:
        host = headers.get("host", "").lower()
        if host.rpartition(":")[0] not in _HOSTS and host not in _HOSTS:
            return PlainTextResponse("This server answers to this machine's loopback alone.", 421)
        if not hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._token):
            return PlainTextResponse("Open the address that patchgym view printed: it holds a token.", 403)
        if method not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("Pages are only looked at.", 405)
        origin = headers.get("origin")
        if method == "POST" and origin is not None and origin.partition("://")[2].lower() != host:
            return PlainTextResponse("The answer came from another site.", 403)
        return None


class _Pages:
    """Requests to pages."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _ASSETS:
            raise HTTPException(404)
        return Response(asset(name), headers={"Content-Type": _ASSETS[name]})

    def runs(self, request: Request) -> Response:
        site, wanted = self._site, request.query_params.getlist("run")
        if len(site.runs) == 1:
            return RedirectResponse(address(site.root, next(iter(site.runs))), 303)
        template, values = runs_page(site, list(dict.fromkeys(wanted)))
        return HTMLResponse(site.render(template, None, "runs", values))

    def page(self, request: Request) -> Response:
        name = request.path_params.get("page", "")
        run = self._run(request)
        if name not in PAGES:
            raise HTTPException(404)
        template, values = PAGES[name](self._site, run, Query(request.query_params))
        return HTMLResponse(self._site.render(template, run, name, values))

    def state(self, request: Request) -> Response:
        """What a page asks for now and then, to see whether it is out of date."""
        progress = self._run(request).progress()
        return JSONResponse({"state": progress.state, "mark": progress.mark, "unread": progress.unread})

    async def answer(self, request: Request) -> Response:
        """Keep a person's answer, and go on to the next item."""
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MOST_BODY:
                return PlainTextResponse("That is more than an answer.", 413)
        return await run_in_threadpool(self._keep, request, dict(parse_qsl(body.decode("utf-8", "replace"))))

    def _keep(self, request: Request, form: Mapping[str, str]) -> Response:
        run, query = self._run(request), Query(request.query_params)
        check = opened_check(self._site, run, query)
        at, label = query.number("item", 0), form.get("label", "")
        if label not in _ANSWERS or not 0 <= at < len(check.items):
            raise UsageError("That is no answer", mend="It is yes, no or unsure.")
        check.give(check.items[at][0], cast(Answer, label), form.get("notes", ""))
        values = {"seed": query.number("seed", 0)}
        return RedirectResponse(address(self._site.root, run.name, "spotcheck", values), 303)

    def error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, PatchgymError)
        values = {"what": error.what, "why": error.why, "mend": error.mend}
        return HTMLResponse(self._site.render("error.html", self._named(request), "error", values), 404)

    def unknown(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        values = {"what": "There is no such page", "why": "", "mend": ""}
        html = self._site.render("error.html", self._named(request), "error", values)
        return HTMLResponse(html, error.status_code)

    def _run(self, request: Request) -> OpenedRun:
        return self._site.run(request.path_params["run"])

    def _named(self, request: Request) -> OpenedRun | None:
        return self._site.runs.get(request.path_params.get("run", ""))
