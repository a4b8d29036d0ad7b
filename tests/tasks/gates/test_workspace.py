"""The attack in real sandboxes: everything planted is found, and a clean workspace gives nothing."""

import asyncio
import shutil
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from patchgym.content import ObjectStore
from patchgym.records import Task
from patchgym.sandbox import ExecResult, NamespaceSandboxes, Sandbox, SandboxFactory, SandboxSpec, ServiceSpec
from patchgym.tasks.gates.attack import reach
from patchgym.tasks.gates.findings import Finding
from patchgym.tasks.gates.workspace import Bounds, attack_workspace
from patchgym.tasks.sources.services import services_of
from patchgym.testrun import Built
from tests.tasks.gates.planting import (
    bare_environment,
    commit,
    files_below,
    git,
    history,
    install_fix,
    leaky_files,
    need_git,
    task_with,
)
from tests.workshop import FIXED, calc_task, sandboxes

BOUNDS = Bounds()


def attack(
    task: Task, objects: ObjectStore, factory: SandboxFactory, built: Path, bounds: Bounds = BOUNDS
) -> tuple[Finding, ...]:
    return asyncio.run(attack_workspace(task, objects, factory, Built(built), bounds))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bare_environment(tmp_path_factory.mktemp("environment") / "env")


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> ObjectStore:
    return ObjectStore(tmp_path_factory.mktemp("objects"))


@pytest.fixture(scope="module")
def factory(objects: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamespaceSandboxes]:
    with sandboxes(objects, tmp_path_factory.mktemp("cache")) as made:
        yield made


@pytest.fixture(scope="module")
def leaky(
    objects: ObjectStore, factory: NamespaceSandboxes, tmp_path_factory: pytest.TempPathFactory
) -> set[tuple[str, str]]:
    """Kind and place of what is found in a workspace and an environment that leak in every way."""
    folder = tmp_path_factory.mktemp("leaky")
    environment = bare_environment(folder / "env")
    install_fix(environment)
    found = attack(task_with(objects, leaky_files(folder / "made")), objects, factory, environment)
    assert {one.check for one in found} == {"workspace"}
    return {(one.kind, one.where.replace(str(environment), "ENV")) for one in found}


def test_a_clean_workspace_gives_nothing(objects: ObjectStore, factory: NamespaceSandboxes, environment: Path) -> None:
    assert attack(calc_task(objects), objects, factory, environment) == ()


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("fixed_source", "/workspace/old/calc.py.orig"),
        ("fixed_source", "/workspace/notes/fix.patch"),
        ("compiled_fix", "/workspace/__pycache__/calc."),
        ("archive", "/workspace/dist/calc-1.1-py3-none-any.whl!calc.py"),
        ("archive", "/workspace/dist/calc-1.1.tar.gz!calc-1.1/src/calc.py"),
        ("archive", "/workspace/cache/body!inner/calc.whl!calc.py"),
        ("hidden_test", "/workspace/notes/later.txt"),
        ("hidden_test", "/workspace/fixtures.zip!t.py"),
        ("stale_result", "/workspace/.pytest_cache/v/cache/lastfailed"),
        ("stale_result", "/workspace/junit.xml"),
        ("stale_result", "/workspace/logs/verifier/reward.txt"),
        ("stale_result", "/workspace/.coverage"),
        ("fixed_source", "ENV/lib/"),
        ("installed_source", "ENV/lib/"),
    ],
)
def test_a_planted_file_is_found(leaky: set[tuple[str, str]], kind: str, place: str) -> None:
    assert any(one == kind and where.startswith(place) for one, where in leaky)


@pytest.fixture(scope="module")
def git_found(
    objects: ObjectStore, factory: NamespaceSandboxes, environment: Path, tmp_path_factory: pytest.TempPathFactory
) -> set[tuple[str, str]]:
    """What is found in a workspace with one repository for each way in which a history leaks."""
    need_git()
    folder = tmp_path_factory.mktemp("histories")
    planted: dict[str, bytes] = {}

    def plant(name: str, source: Path) -> None:
        planted.update(files_below(source, name))

    history(folder / "reflog")  # the fix is in the log and dangling
    (folder / "reflog" / ".git" / "ORIG_HEAD").unlink()
    plant("reflog/.git", folder / "reflog" / ".git")
    for name, arguments in {
        "branch": ("branch", "later"),
        "tag": ("tag", "v2"),
        "annotated": ("tag", "-a", "-m", "two", "v3"),
    }.items():
        _, fix = history(folder / name)
        git(folder / name, *arguments, fix)
        shutil.rmtree(folder / name / ".git" / "logs")
        if name == "tag":
            git(folder / name, "pack-refs", "--all")
        plant(f"{name}.git", folder / name / ".git")
    history(folder / "stash")
    (folder / "stash" / "calc.py").write_text(FIXED, encoding="utf-8")
    git(folder / "stash", "stash")
    plant("stash/.git", folder / "stash" / ".git")
    history(folder / "packed")  # deltas: many versions of one file
    for number in range(12):
        commit(folder / "packed", FIXED + "# more\n" * number + "x = 1\n" * 50, f"version {number}")
    git(folder / "packed", "repack", "-a", "-d", "-q", "--depth=20")
    git(folder / "packed", "bundle", "create", "-q", "out.bundle", "--all")
    planted["a.bundle"] = (folder / "packed" / "out.bundle").read_bytes()
    planted["stray/some.pack"] = next((folder / "packed" / ".git" / "objects" / "pack").glob("*.pack")).read_bytes()
    found = attack(task_with(objects, planted), objects, factory, environment)
    return {(one.kind, one.where) for one in found}


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("git_reflog", "/workspace/reflog/.git/logs/"),
        ("git_unreachable", "/workspace/reflog/.git"),
        ("git_object", "/workspace/reflog/.git!blob "),
        ("git_ref", "/workspace/branch.git/refs/heads/later"),
        ("git_tag", "/workspace/tag.git/packed-refs!refs/tags/v2"),
        ("git_tag", "/workspace/annotated.git/refs/tags/v3"),
        ("git_stash", "/workspace/stash/.git/refs/stash"),
        ("git_object", "/workspace/a.bundle!blob "),
        ("git_object", "/workspace/stray/some.pack!blob "),
    ],
)
def test_a_leaking_history_is_found(git_found: set[tuple[str, str]], kind: str, place: str) -> None:
    assert any(one == kind and where.startswith(place) for one, where in git_found)


def test_a_history_that_ends_at_the_bug_is_clean(
    objects: ObjectStore, factory: NamespaceSandboxes, environment: Path, tmp_path: Path
) -> None:
    need_git()
    folder = tmp_path / "clean"
    folder.mkdir()
    git(folder, "init", "-q")
    task = calc_task(objects)
    before = objects.get(objects.entries(task.workspace)["calc.py"].id).decode()
    commit(folder, "x = 1\n", "first")
    git(folder, "tag", "v1")
    commit(folder, before, "second")
    git(folder, "branch", "same")
    planted = files_below(folder / ".git", "repo/.git")
    assert attack(task_with(objects, planted), objects, factory, environment) == ()


def test_a_fix_that_was_undone_in_the_history_is_found(
    objects: ObjectStore, factory: NamespaceSandboxes, environment: Path, tmp_path: Path
) -> None:
    need_git()
    folder = tmp_path / "undone"
    folder.mkdir()
    git(folder, "init", "-q")
    commit(folder, FIXED, "healthy")
    commit(folder, "x = 1\n", "plant a bug")
    found = attack(task_with(objects, files_below(folder / ".git", "repo/.git")), objects, factory, environment)
    assert [one.kind for one in found] == ["git_object"]


def test_what_was_left_unsearched_is_a_finding(
    objects: ObjectStore, factory: NamespaceSandboxes, environment: Path
) -> None:
    for bounds in (Bounds(bytes=10), Bounds(seconds=0.0)):
        found = attack(calc_task(objects), objects, factory, environment, bounds)
        assert "unsearched" in {one.kind for one in found}


class Roomy:
    """Sandboxes with a way out: variables, mounts, and a program that listens inside."""

    kind = "roomy"

    def __init__(self, inner: SandboxFactory, spec: Mapping[str, Path], variables: Mapping[str, str]) -> None:
        self._inner, self._mounts, self._variables = inner, spec, variables

    async def create(self, spec: SandboxSpec) -> Sandbox:
        mounts, variables = {**spec.mounts, **self._mounts}, {**spec.variables, **self._variables}
        sandbox = await self._inner.create(replace(spec, mounts=mounts, variables=variables))
        return Listening(sandbox)


class Listening:
    """A sandbox in which each command finds a server on port 8418."""

    def __init__(self, inner: Sandbox) -> None:
        self.kind, self._inner = inner.kind, inner
        self.read, self.write, self.diff = inner.read, inner.write, inner.diff
        self.snapshot, self.fork, self.close = inner.snapshot, inner.fork, inner.close
        self.locate = inner.locate

    async def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "",
        variables: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        stdin: bytes = b"",
        report: bool = False,
        keep: bool = False,
    ) -> ExecResult:
        server = (
            "import socket, time; s = socket.create_server(('127.0.0.1', 8418)); print(1, flush=True); time.sleep(60)"
        )
        script = (
            f'python -S -c "{server}" > /tmp/ready & server=$!; until test -s /tmp/ready; do sleep 0.05; done; '
            '"$@"; code=$?; kill $server; exit $code'
        )
        return await self._inner.exec(
            ["sh", "-c", script, "sh", *argv],
            cwd=cwd,
            variables=variables,
            timeout_s=timeout_s,
            stdin=stdin,
            report=report,
            keep=keep,
        )


@contextmanager
def unix_server(path: Path) -> Iterator[None]:
    """A socket file that somebody accepts connections on."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        path.chmod(0o666)
        server.listen()
        threading.Thread(target=lambda: accept(server), daemon=True).start()
        yield
        server.shutdown(socket.SHUT_RDWR)


def accept(server: socket.socket) -> None:
    try:
        while True:
            server.accept()[0].close()
    except OSError:
        return


def test_proxies_and_sockets_within_reach_are_found(
    objects: ObjectStore, factory: NamespaceSandboxes, environment: Path, tmp_path: Path
) -> None:
    path = tmp_path / "index.sock"
    with unix_server(path):
        roomy = Roomy(factory, {"/srv/index.sock": path}, {"HTTPS_PROXY": "http://10.0.0.1:3128"})
        found = attack(calc_task(objects), objects, roomy, environment)
    told = {(one.kind, one.where) for one in found}
    assert {("proxy", "$HTTPS_PROXY"), ("socket", "/srv/index.sock"), ("socket", "127.0.0.1:8418")} <= told


def test_an_index_that_answers_is_told_from_one_that_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert reach.answer_of("127.0.0.1", port) == "a connection was made"
    assert reach.answer_of("127.0.0.1", port) == ""


def test_a_service_of_the_tasks_own_is_no_way_out_and_anything_beside_it_is(
    objects: ObjectStore, factory: NamespaceSandboxes, environment: Path
) -> None:
    (stub,) = services_of({"http": {}})
    service = ServiceSpec(
        stub.name, stub.command, stub.health, files=tuple(stub.files.items()), environment=environment
    )
    task = calc_task(objects)

    def places(*ports: int) -> set[str]:
        own = task.environment.model_copy(update={"services": (stub.model_copy(update={"ports": ports}),)})
        whole = task.model_copy(update={"environment": own})
        found = asyncio.run(attack_workspace(whole, objects, factory, Built(environment, (service,)), BOUNDS))
        return {one.where for one in found if one.kind == "socket"}

    assert places(*stub.ports) == set()
    assert places(9999) == {"127.0.0.1:8000"}
