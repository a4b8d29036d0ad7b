"""A package index on loopback with one tiny wheel and what a test adds, which can be switched off."""

import base64
import hashlib
import html
import json
import threading
import zipfile
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

WHEEL = "tinydemo-1.0-py3-none-any.whl"
_JSON = "application/vnd.pypi.simple.v1+json"


@dataclass(frozen=True)
class _File:
    data: bytes
    uploaded: str | None
    yanked: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


class PackageIndex:
    """Serves ``tinydemo`` 1.0. ``lock`` pins it; ``url`` is what pip's ``index-url`` would be. ``asked`` lists the
    paths that were asked for. It speaks JSON too, where a file has an upload time."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.files: dict[str, dict[str, _File]] = {}
        self.asked: list[str] = []
        self.sha256 = self.add("tinydemo", WHEEL, make_wheel("tinydemo", "1.0", {"tinydemo.py": "ANSWER = 42\n"}))
        self.lock = f"tinydemo==1.0 --hash=sha256:{self.sha256}\n"
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.answer(with_body=False)

            def do_GET(self) -> None:
                index.asked.append(self.path)
                self.answer(with_body=True)

            def answer(self, with_body: bool) -> None:
                kind, body = index.answer(self.path, self.headers.get("Accept", ""))
                self.send_response(200 if body is not None else 404)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body if body and with_body else b"")

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/simple"

    def add(
        self, project: str, filename: str, data: bytes, *, uploaded: str | None = None, yanked: bool = False
    ) -> str:
        """Put a file on a project's page; returns its SHA-256. ``uploaded`` is an ISO time."""
        file = _File(data, uploaded, yanked)
        self.files.setdefault(project, {})[filename] = file
        return file.sha256

    def answer(self, path: str, accept: str) -> tuple[str, bytes | None]:
        """The content type and the body for a path; no body where there is nothing."""
        parts = path.strip("/").split("/")
        if len(parts) == 2 and parts[0] == "simple" and parts[1] in self.files:
            files = self.files[parts[1]]
            if _JSON in accept and any(file.uploaded for file in files.values()):
                return _JSON, _json_page(parts[1], files)
            return "text/html", _html_page(files)
        if len(parts) == 3 and parts[0] == "simple":
            file = self.files.get(parts[1], {}).get(parts[2])
            return "application/octet-stream", file.data if file else None
        return "text/plain", None

    def switch_off(self) -> None:
        """Close the port: from now on connections are refused."""
        self._server.shutdown()
        self._server.server_close()


def make_wheel(name: str, version: str, files: dict[str, str]) -> bytes:
    """A pure wheel with these files."""
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in files.items()]
    files[f"{info}/RECORD"] = "".join(lines) + f"{info}/RECORD,,\n"
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return out.getvalue()


def _html_page(files: dict[str, _File]) -> bytes:
    links = [
        f'<a href="{html.escape(name)}#sha256={file.sha256}"{" data-yanked" if file.yanked else ""}>{name}</a>'
        for name, file in files.items()
    ]
    return f"<!DOCTYPE html><html><body>{'<br>'.join(links)}</body></html>".encode()


def _json_page(project: str, files: dict[str, _File]) -> bytes:
    entries = [
        {
            "filename": name,
            "url": name,
            "hashes": {"sha256": file.sha256},
            "yanked": file.yanked,
            "size": len(file.data),
            **({"upload-time": file.uploaded} if file.uploaded else {}),
        }
        for name, file in files.items()
    ]
    return json.dumps({"meta": {"api-version": "1.1"}, "name": project, "files": entries, "versions": []}).encode()


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
