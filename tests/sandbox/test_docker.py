"""What only containers have: images, leases, an engine that may be missing."""

import asyncio
import io
import os
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from patchgym.content import ObjectStore
from patchgym.errors import PrerequisiteError, SandboxError
from patchgym.sandbox import Ending, ExecResult, NamespaceSandboxes, ProcessSandboxes, SandboxSpec
from patchgym.sandbox.docker import DockerSandboxes, Engine, check_docker
from patchgym.sandbox.docker.container import Container
from patchgym.sandbox.docker.engine import filters
from patchgym.sandbox.docker.leases import labels, sweep
from patchgym.sandbox.docker.machine import user_of
from tests.sandbox.conftest import FILES

pytestmark = pytest.mark.xdist_group("docker")
PROGRAMS = ("/bin/sh", "/usr/bin/cat", "/usr/bin/ls", "/usr/bin/env", "/usr/bin/touch")


@pytest.fixture(scope="module")
def calls(engine: str) -> Iterator[Engine]:
    """The engine, to look at."""
    found = Engine(engine)
    yield found
    found.close()


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "objects")


@pytest.fixture
def tree(store: ObjectStore, tmp_path: Path) -> str:
    for path, data in FILES.items():
        (tmp_path / "tree" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / path).write_bytes(data)
    return store.ingest(tmp_path / "tree")


@pytest.fixture
def run(store: ObjectStore, tmp_path: Path, engine: str) -> Iterator[Callable[..., ExecResult]]:
    """Runs one shell script in a sandbox of a specification."""
    made = DockerSandboxes(store, cache=tmp_path / "cache", scratch=tmp_path / "scratch", host=engine)

    async def script_in(spec: SandboxSpec, script: str) -> ExecResult:
        sandbox = await made.create(spec)
        try:
            return await sandbox.exec(["sh", "-c", script])
        finally:
            await sandbox.close()

    yield lambda spec, script: asyncio.run(script_in(spec, script))
    made.close()


@pytest.fixture(scope="module")
def image(calls: Engine) -> str:
    """An image with a shell and a few programs of this machine."""
    libraries = {
        place
        for program in PROGRAMS
        for place in re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", program], capture_output=True, text=True).stdout)
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", dereference=True) as archive:
        for path in sorted({*PROGRAMS, *libraries}):
            archive.add(path, path.lstrip("/"))
        for name in ("tmp", "testbed"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
            archive.addfile(entry)
    calls.call("POST", "/images/create", content=packed.getvalue(), fromSrc="-", repo="given", tag="small")
    return "given:small"


def test_an_image_of_the_tasks_own_has_its_files_and_not_this_machines(
    run: Callable[..., ExecResult], tree: str, image: str
) -> None:
    done = run(SandboxSpec(tree=tree, image=image), "ls /usr/bin; cat README.md; pwd")
    names = sorted(Path(program).name for program in PROGRAMS if program.startswith("/usr/bin/"))
    assert done.stdout.decode().split() == [*names, "hello", "/workspace"], done


def test_a_dockerfile_is_built_once_and_its_folder_shows_the_workspace_too(
    run: Callable[..., ExecResult], calls: Engine, tree: str, image: str
) -> None:
    dockerfile = f"FROM {image}\nENV TOLD=yes\nWORKDIR /testbed\n"
    script = "cat /testbed/README.md; touch /testbed/new; ls /workspace; echo $TOLD"
    for _ in range(2):
        done = run(SandboxSpec(tree=tree, dockerfile=dockerfile), script)
        assert done.stdout.decode().split() == ["hello", "README.md", "new", "package", "yes"], done
    built = [name for one in calls.call("GET", "/images/json") for name in one["RepoTags"] or ()]
    assert len([name for name in built if name.startswith("patchgym/task:")]) == 1


def test_a_dockerfile_that_cannot_be_built_says_why(run: Callable[..., ExecResult], tree: str, image: str) -> None:
    with pytest.raises(SandboxError, match="nothing"):
        run(SandboxSpec(tree=tree, dockerfile=f"FROM {image}\nCOPY nothing /nothing\n"), "true")


def test_an_image_that_cannot_be_had_says_so(run: Callable[..., ExecResult], tree: str) -> None:
    with pytest.raises(SandboxError, match="no-such-registry"):
        run(SandboxSpec(tree=tree, image="no-such-registry.invalid/image:1"), "true")


@pytest.mark.parametrize("kind", [NamespaceSandboxes, ProcessSandboxes])
def test_other_kinds_refuse_images(kind: Any, store: ObjectStore, tree: str) -> None:
    with pytest.raises(PrerequisiteError, match="image"):
        asyncio.run(kind(store).create(SandboxSpec(tree=tree, image="python:3.12")))


def test_a_missing_engine_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="DOCKER_HOST"):
        check_docker(f"unix://{tmp_path}/none")
    with pytest.raises(PrerequisiteError, match="not on this machine"):
        check_docker("tcp://127.0.0.1:2375")


def test_an_engine_that_maps_users_is_refused() -> None:
    assert user_of({"SecurityOptions": ["name=seccomp,profile=default", "name=rootless"]}) == "0:0"
    assert user_of({}) == f"{os.geteuid()}:{os.getegid()}"
    with pytest.raises(PrerequisiteError, match="userns-remap"):
        user_of({"SecurityOptions": ["name=userns"]})


def test_a_path_that_no_mount_can_name_is_refused(store: ObjectStore, tree: str, tmp_path: Path, engine: str) -> None:
    made = DockerSandboxes(store, cache=tmp_path / "cache", scratch=tmp_path / "a:b", host=engine)

    async def begin() -> None:
        sandbox = await made.create(SandboxSpec(tree=tree))
        try:
            await sandbox.exec(["true"])
        finally:
            await sandbox.close()

    with pytest.raises(SandboxError, match="TMPDIR"):
        asyncio.run(begin())
    made.close()


RUNNER = """
import asyncio, sys
from pathlib import Path
from patchgym.content import ObjectStore
from patchgym.sandbox import SandboxSpec
from patchgym.sandbox.docker import DockerSandboxes

async def main(folder, tree, host):
    store, cache, scratch = ObjectStore(folder / "objects"), folder / "cache", folder / "scratch"
    made = DockerSandboxes(store, cache=cache, scratch=scratch, host=host)
    sandbox = await made.create(SandboxSpec(tree=tree))
    await sandbox.exec(["true"])
    print("ready", flush=True)
    await sandbox.exec(["sleep", "1000"])

asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
"""


def owned(calls: Engine, folder: Path) -> tuple[list[str], list[str]]:
    """The containers and volumes of the owners of scratch folders below a folder."""

    def mine(one: dict[str, Any]) -> bool:
        return str((one.get("Labels") or {}).get("patchgym.lease", "")).startswith(f"{folder}/")

    containers = calls.call("GET", "/containers/json", all="1", filters=filters(label=["patchgym.lease"]))
    volumes = calls.call("GET", "/volumes")["Volumes"] or []
    return [one["Id"] for one in containers if mine(one)], [one["Name"] for one in volumes if mine(one)]


def test_a_killed_runner_leaves_nothing_after_the_next_start_and_a_living_one_keeps_its_own(
    calls: Engine, store: ObjectStore, tree: str, tmp_path: Path, engine: str, run: Callable[..., ExecResult]
) -> None:
    command = [sys.executable, "-c", RUNNER, str(tmp_path), tree, engine]
    runners = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        for runner in runners:
            assert runner.stdout is not None
            assert runner.stdout.readline() == "ready\n"
        assert [len(found) for found in owned(calls, tmp_path)] == [2, 2]
        runners[0].send_signal(signal.SIGKILL)
        runners[0].wait()
        assert run(SandboxSpec(tree=tree), "true").exit_code == 0
        assert [len(found) for found in owned(calls, tmp_path)] == [1, 1]
        assert runners[1].poll() is None
    finally:
        for runner in runners:
            runner.kill()
            runner.communicate()
    sweep(calls)
    assert owned(calls, tmp_path) == ([], [])


def test_what_is_of_another_machine_is_left_alone(calls: Engine, image: str, tmp_path: Path) -> None:
    gone = tmp_path / "patchgym-1-00000000"
    foreign = {**labels(gone), "patchgym.view": "another boot"}
    made = [
        calls.call("POST", "/containers/create", {"Image": image, "Cmd": ["true"], "Labels": told})["Id"]
        for told in (foreign, labels(gone))
    ]
    sweep(calls)
    left = {one["Id"] for one in calls.call("GET", "/containers/json", all="1")}
    assert (made[0] in left, made[1] in left) == (True, False)
    calls.call("DELETE", f"/containers/{made[0]}", force="1")


def test_an_engine_that_misses_the_end_of_a_command_does_not_lose_the_sandbox(
    store: ObjectStore, tree: str, tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does when many processes end at once: what it says is then "running", of nothing that is left."""
    made = DockerSandboxes(store, cache=tmp_path / "cache", scratch=tmp_path / "scratch", host=engine)
    told = Container.state

    async def go() -> tuple[ExecResult, ExecResult]:
        sandbox = await made.create(SandboxSpec(tree=tree))
        try:
            monkeypatch.setattr("patchgym.sandbox.docker.sandbox._PATIENCE_S", 3.0)
            monkeypatch.setattr(Container, "state", lambda container, name: (None, True))
            lost = await sandbox.exec(["sh", "-c", "sleep 100"], timeout_s=2.0)
            monkeypatch.setattr(Container, "state", told)
            return lost, await sandbox.exec(["sh", "-c", "echo here"])
        finally:
            await sandbox.close()

    try:
        lost, after = asyncio.run(go())
    finally:
        made.close()
    assert lost.ending is Ending.TIMED_OUT
    assert after.stdout == b"here\n"
