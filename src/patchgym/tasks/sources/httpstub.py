"""A stub of an HTTP service: it answers what ``routes.json`` says, and remembers nothing. Stands alone.

``routes.json`` maps ``"METHOD /path"`` to an object with ``status`` (200), ``headers`` and ``body`` (a text, or
anything else, which is sent as JSON). Any other request is answered with 404.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def load(path: Path) -> dict[str, dict[str, Any]]:
    """The routes of a file; none where there is no such file."""
    routes: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return routes


class Stub(BaseHTTPRequestHandler):
    """Answers one request."""

    routes: dict[str, dict[str, Any]]

    def answer(self) -> None:
        """Answer by the routes."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = self.routes.get(f"{self.command} {self.path}", {"status": 404, "body": "no such route"})
        body = found.get("body", "")
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(found.get("status", 200))
        for name, value in {"Content-Length": str(len(data)), **found.get("headers", {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = answer


if __name__ == "__main__":
    Stub.routes = load(Path("routes.json"))
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Stub).serve_forever()
