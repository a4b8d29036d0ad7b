"""What lies within reach beyond the file system: networks, package indexes, proxies, sockets."""

from __future__ import annotations

import errno
import os
import re
import socket

from .secrets import Search
from .walk import Found, read

_SECONDS = 1.0
_VARIABLES = re.compile(
    r"(?:https?|all|ftp|socks)_proxy$|(?:PIP|UV)_.*(?:INDEX|FIND_LINKS|PROXY)|CONDA_.*CHANNEL", re.I
)
_FILES = (
    "/etc/pip.conf",
    "/etc/uv/uv.toml",
    "~/.config/pip/pip.conf",
    "~/.pip/pip.conf",
    "~/.config/uv/uv.toml",
    "~/.netrc",
)


def look_around(search: Search) -> None:
    """Report every way out of the sandbox that could lead to the next release."""
    for name, value in sorted(os.environ.items()):
        if value and _VARIABLES.search(name):
            search.report.add("proxy", "$" + name, re.sub(r"//[^/@]*@", "//", value))
    for path in _FILES:
        text = read(os.path.expanduser(path), 65536).decode("utf-8", "replace")
        for line in text.split("\n"):
            if re.match(r"\s*(?:extra-)?(?:index-url|find-links|proxy|url|machine)\b", line):
                search.report.add("proxy", path, re.sub(r"//[^/@]*@", "//", line.strip()))
    for host, port in _index_places(search.secrets.index):
        said = answer_of(host, port)
        if said:
            search.report.add("network", f"{host}:{port}", said)
    for line in read("/proc/net/route", 65536).decode("ascii", "replace").split("\n")[1:]:
        if line.strip() and line.split()[0] != "lo":
            search.report.add("network", line.split()[0], "a route leads out of the sandbox")
    for port in _listening():
        if port in search.secrets.ports:
            continue  # a service of the task's own
        search.report.add("socket", f"127.0.0.1:{port}", "something listens there")


def look_at_socket(found: Found, search: Search) -> None:
    """Report a socket file that answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(_SECONDS)
        try:
            link.connect(found.path)
        except (OSError, ValueError):
            return
    search.report.add("socket", found.path, "a socket that answers")


def _index_places(index: list[str]) -> list[tuple[str, int]]:
    found = []
    for place in index:
        host, _, port = place.rpartition(":")
        found.append((host, int(port)))
    return found


def answer_of(host: str, port: int) -> str:
    """What answers at a place; empty for nothing."""
    try:
        with socket.create_connection((host, port), timeout=_SECONDS):
            return "a connection was made"
    except OSError as error:
        refused = error.errno == errno.ECONNREFUSED and not host.startswith(("127.", "localhost", "::1"))
        return "the network answers: connection refused" if refused else ""


def _listening() -> list[int]:
    """TCP ports on which somebody listens, from the kernel's own table."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in read(table, 1024 * 1024).decode("ascii", "replace").split("\n")[1:]:
            fields = line.split()
            if len(fields) > 3 and fields[3] == "0A":
                found.add(int(fields[1].rpartition(":")[2], 16))
    return sorted(found)
