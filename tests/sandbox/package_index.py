"""A package index on loopback with one tiny wheel, which can be switched off."""

import base64
import hashlib
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

WHEEL = "tinydemo-1.0-py3-none-any.whl"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


class PackageIndex:
    """Serves ``tinydemo`` 1.0. ``lock`` pins it; ``url`` is what pip's ``index-url`` would be."""

    def __init__(self, folder: Path) -> None:
        project = folder / "simple" / "tinydemo"
        project.mkdir(parents=True)
        _write_wheel(project / WHEEL)
        self.sha256 = hashlib.sha256((project / WHEEL).read_bytes()).hexdigest()
        page = f'<!DOCTYPE html><html><body><a href="{WHEEL}#sha256={self.sha256}">{WHEEL}</a></body></html>'
        (project / "index.html").write_text(page)
        self.lock = f"tinydemo==1.0 --hash=sha256:{self.sha256}\n"
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/simple"

    def switch_off(self) -> None:
        """Close the port: from now on connections are refused."""
        self._server.shutdown()
        self._server.server_close()


def _write_wheel(path: Path) -> None:
    info = "tinydemo-1.0.dist-info"
    files = {
        "tinydemo.py": "ANSWER = 42\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tinydemo\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [f"{name},sha256={_digest(text)},{len(text)}\n" for name, text in files.items()]
    files[f"{info}/RECORD"] = "".join(lines) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
