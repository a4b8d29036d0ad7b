"""Services beside a sandbox: started with it, within its reach alone, gone with it."""

import json
import os
import sys
import time
from dataclasses import replace

import pytest

from patchgym.errors import PrerequisiteError, SandboxError
from patchgym.records import Environment
from patchgym.sandbox import ServiceSpec
from patchgym.sandbox.docker import DockerSandboxes
from patchgym.sandbox.docker.engine import filters
from patchgym.sandbox.environments import build_environment
from patchgym.tasks.sources.services import known_services, services_of
from patchgym.testrun import built_environment
from tests.sandbox.box import Box, Boxes, processes_with
from tests.workshop import here

ROUTES = {"GET /told": {"body": "stub"}, "POST /made": {"status": 201, "body": {"id": 1}, "headers": {"X-Mark": "m"}}}
ASK = """
import sys, urllib.request
request = urllib.request.Request("http://127.0.0.1:8000" + sys.argv[2], method=sys.argv[1])
try:
    with urllib.request.urlopen(request, timeout=5) as answer:
        print(answer.status, answer.read().decode(), answer.headers.get("X-Mark"))
except OSError as error:
    print(type(error).__name__, getattr(error, "code", ""))
"""


@pytest.fixture
def http(boxes: Boxes) -> ServiceSpec:
    """The stub of an HTTP service, with routes."""
    (known,) = services_of({"http": {}})
    files = {**known.files, "routes.json": json.dumps(ROUTES)}
    return ServiceSpec(
        name=known.name,
        command=known.command,
        health=known.health,
        files=tuple(files.items()),
        environment=boxes.environment,
    )


def ask(box: Box, method: str, path: str) -> str:
    done = box.exec("python", "-c", ASK, method, path)
    assert done.exit_code == 0, done
    return done.stdout.decode().strip()


def running(boxes: Boxes) -> int:
    """How many sandboxes and networks of the factory are alive."""
    factory = boxes.factory
    machine = factory._ready
    assert machine is not None
    if isinstance(factory, DockerSandboxes):
        assert factory._ready is not None
        lease = filters(label=[f"patchgym.lease={machine.scratch.path}"])
        return len(factory._ready.engine.call("GET", "/containers/json", all="1", filters=lease))
    return len([pid for pid in processes_with(f"{machine.scratch.path}/") if pid != os.getpid()])


def test_a_service_answers_from_the_first_command_on(boxes: Boxes, tree: str, http: ServiceSpec) -> None:
    box = boxes.open(tree, services=(http,))
    assert ask(box, "GET", "/told") == "200 stub None"
    assert ask(box, "POST", "/made") == '201 {"id": 1} m'
    assert ask(box, "GET", "/other") == "HTTPError 404"


def test_a_service_outlives_commands_and_none_of_its_files_and_processes_show(
    boxes: Boxes, tree: str, http: ServiceSpec
) -> None:
    box = boxes.open(tree, services=(http,))
    done = box.sh("kill -9 -1; ls /workspace; cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert b"httpstub" not in done.stdout
    assert ask(box, "GET", "/told") == "200 stub None"


def test_a_service_is_out_of_reach_of_every_other_sandbox(boxes: Boxes, tree: str, http: ServiceSpec) -> None:
    box, other = boxes.open(tree, services=(http,)), boxes.open(tree)
    twin = boxes.open(tree, services=(http,))
    assert ask(box, "GET", "/told") == "200 stub None"
    assert ask(other, "GET", "/told") == "URLError"
    assert ask(twin, "GET", "/told") == "200 stub None"  # its own, at the same port


def test_with_a_service_nothing_else_can_be_reached(boxes: Boxes, tree: str, http: ServiceSpec) -> None:
    box = boxes.open(tree, services=(http,))
    script = "import socket; socket.create_connection(('1.1.1.1', 53), 3)"
    done = box.exec("python", "-c", script)
    assert b"unreachable" in done.stderr, done
    assert box.out("cat /sys/class/net/*/address /proc/net/dev 2>/dev/null | grep -c ':' || true").strip() in ("1", "2")


def test_a_fork_has_services_of_its_own(boxes: Boxes, tree: str, http: ServiceSpec) -> None:
    box = boxes.open(tree, services=(http,))
    twin = box.fork()
    try:
        assert ask(twin, "GET", "/told") == "200 stub None"
    finally:
        box.close()
    assert ask(twin, "GET", "/told") == "200 stub None"
    twin.close()


def test_nothing_of_a_service_is_left(boxes: Boxes, tree: str, http: ServiceSpec) -> None:
    marker = f"marker-{time.monotonic_ns()}"
    box = boxes.open(tree, services=(replace(http, command=(*http.command, marker)),))
    assert processes_with(marker) != []
    box.close()
    box.close()
    assert processes_with(marker) == []


def test_a_setup_runs_once_for_all_sandboxes(boxes: Boxes, tree: str, http: ServiceSpec) -> None:
    routes = '{"GET /when": {"body": "%s"}}'
    setup = ("python", "-c", f"import time; open('routes.json', 'w').write('{routes}' % time.time_ns())")
    prepared = replace(http, files=http.files[:1], setup=setup)
    told = {ask(boxes.open(tree, services=(prepared,)), "GET", "/when") for _ in range(2)}
    assert len(told) == 1
    assert told.pop().startswith("200 1")


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ({"command": ("sh", "-c", "echo no such luck >&2; exit 3"), "ready_s": 0.5}, "no such luck"),
        ({"health": ("false",), "ready_s": 0.5}, "not ready"),
        ({"setup": ("sh", "-c", "echo bad setup >&2; exit 1")}, "bad setup"),
        ({"setup": ("no-such-server",), "package": "no-such-package"}, "apt-get install no-such-package"),
    ],
)
def test_a_service_that_does_not_start_says_why_and_leaves_nothing(
    boxes: Boxes, tree: str, http: ServiceSpec, broken: dict[str, object], told: str
) -> None:
    boxes.open(tree).exec("true")
    before = running(boxes)
    with pytest.raises((SandboxError, PrerequisiteError), match=told):
        boxes.open(tree, services=(replace(http, **broken),))  # type: ignore[arg-type]
    assert running(boxes) <= before  # what is made ready once may stay, but nothing runs in it


@pytest.mark.network
def test_every_known_service_brings_its_own_programs_and_keeps_what_it_is_told(boxes: Boxes, tree: str) -> None:
    """Each sandbox has servers of its own: what one is told, another does not know."""
    environment = Environment(
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        services=services_of({name: {} for name in known_services()}),
    )
    built = boxes.runner.run(
        built_environment(environment, lambda one: build_environment(one) if one.lock else here(one))
    )
    ping = """
import socket
with socket.create_connection(("127.0.0.1", 6379), 5) as server:
    server.sendall(b"INCR counter\\r\\n")
    print(server.recv(100))
"""
    for _ in range(2):
        box = boxes.open(tree, services=built.services)
        assert box.exec("python", "-c", ping).stdout.startswith(b"b':1\\r\\n'")
        done = box.exec("python", "-c", "import socket; socket.create_connection(('127.0.0.1', 5432), 5)")
        assert done.exit_code == 0, done
        assert ask(box, "GET", "/unknown") == "HTTPError 404"
        box.close()
