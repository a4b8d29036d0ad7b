"""The services that packages ask for, and the stub of an HTTP service by itself."""

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from importlib import resources
from pathlib import Path

import pytest

from patchgym.errors import ConfigError
from patchgym.records import Environment
from patchgym.tasks.sources.packages import known_packages
from patchgym.tasks.sources.services import known_services, services_of


def test_every_service_is_complete_and_its_programs_are_pinned() -> None:
    for name, service in known_services().items():
        (made,) = services_of({name: {"EXTRA": "1"}})
        assert made.variables == {**service.variables, "EXTRA": "1"}
        assert made.command
        assert made.health
        assert bool(service.lock) == ("--hash=sha256:" in made.lock)


def test_packages_ask_for_services_that_there_are() -> None:
    asked = {name: services_of(package.services) for name, package in known_packages().items()}
    assert [service.name for service in asked["huey"]] == ["redis", "postgresql"]
    with pytest.raises(ConfigError, match="http"):
        services_of({"mongodb": {}})


def test_an_environment_with_services_is_written_and_read_as_it_is() -> None:
    environment = Environment(python="3.12", services=services_of({"http": {}, "redis": {"A": "b"}}))
    assert Environment.model_validate_json(environment.model_dump_json()) == environment


def test_the_stub_answers_by_its_routes_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "routes.json").write_text(json.dumps({"PUT /a": {"status": 202, "body": ["x"]}}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    stub = resources.files("patchgym.tasks.sources").joinpath("httpstub.py")
    process = subprocess.Popen([sys.executable, str(stub), str(port)], cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.05)
        url = f"http://127.0.0.1:{port}"
        request = urllib.request.Request(f"{url}/a", data=b"sent", method="PUT")
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert (answer.status, answer.read()) == (202, b'["x"]')
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{url}/../../etc/passwd", timeout=10)
    finally:
        process.kill()
        process.wait()
