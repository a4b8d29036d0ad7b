"""Sandbox and start-up times: ours, the floor that this machine allows, and ``docker run`` on the same work.

Prints one JSON document: medians in milliseconds of interleaved repeats, and their ratios. Claims: a sandbox made, used
once and destroyed takes at most 10 ms, at least 20 times less than ``docker run``; a command in a living sandbox at
most 3 ms more than the command itself; of 64 sandboxes at once each takes under 40 MB; ``patchgym --help`` answers in
under 0.5 s.

    python benchmarks/sandbox.py [--repeats 30] [--docker-host unix:///run/docker.sock | --start-dockerd]
                                 [--peer-python PYTHON | --install-peer]

``--start-dockerd`` (root, Debian's ``docker.io``) starts an engine of its own in a temporary folder, with an image made
from this machine's files, and takes all of it away again. ``--peer-python`` is an interpreter that has SWE-ReX
(``swe-rex``), whose local runtime runs commands without isolation; ``--install-peer`` makes one in a temporary folder.
"""

import argparse
import asyncio
import io
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from patchgym.content import ObjectStore
from patchgym.records import Environment
from patchgym.sandbox import NamespaceSandbox, NamespaceSandboxes, SandboxSpec, ServiceSpec
from patchgym.sandbox.bwrap import find_bwrap, fresh_arguments, isolation_arguments, overlay_arguments, part_arguments
from patchgym.sandbox.docker import DockerSandbox, DockerSandboxes
from patchgym.sandbox.docker.own import own_engine
from patchgym.sandbox.environments import build_environment
from patchgym.sandbox.layerfiles import remove_tree
from patchgym.sandbox.scratch import folders
from patchgym.sandbox.system import system_parts
from patchgym.tasks.sources.services import services_of
from patchgym.testrun import built_environment

IMAGE = "patchgym-benchmark"
FILES = 200
CROWD = 64
PEER = """
import asyncio, contextlib, json, logging, sys, time

logging.disable()
from swerex.deployment.local import LocalDeployment
from swerex.runtime.abstract import BashAction, CreateBashSessionRequest


async def begun():
    deployment = LocalDeployment()
    await deployment.start()
    await deployment.runtime.create_session(CreateBashSessionRequest())
    return deployment


async def say(deployment):
    await deployment.runtime.run_in_session(BashAction(command="true"))


async def main(repeats):
    whole, said = [], []
    for _ in range(repeats):
        began = time.perf_counter()
        deployment = await begun()
        await say(deployment)
        await deployment.stop()
        whole.append((time.perf_counter() - began) * 1000)
    deployment = await begun()
    for _ in range(repeats):
        began = time.perf_counter()
        await say(deployment)
        said.append((time.perf_counter() - began) * 1000)
    await deployment.stop()
    return {"swe_rex_local_create_true_destroy": whole, "swe_rex_local_command": said}


with contextlib.redirect_stdout(sys.stderr):
    found = asyncio.run(main(int(sys.argv[1])))
print(json.dumps(found))
"""


def make_tree(store: ObjectStore, folder: Path) -> str:
    """A workspace of ``FILES`` small files."""
    for index in range(FILES):
        place = folder / f"package{index % 10}" / f"module{index}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"VALUE = {index}\n" * 50)
    return store.ingest(folder)


async def ours(
    factory: NamespaceSandboxes | DockerSandboxes, tree: str, *, diff: bool, services: tuple[ServiceSpec, ...] = ()
) -> None:
    """Make a sandbox, run ``true`` in it, diff it and destroy it."""
    sandbox = await factory.create(SandboxSpec(tree=tree, services=services))
    done = await sandbox.exec(["true"])
    assert done.exit_code == 0, done
    if diff:
        assert await sandbox.diff() == ""
    await sandbox.close()


async def servers() -> tuple[ServiceSpec, ...]:
    """PostgreSQL and Redis from PyPI, and the HTTP stub."""
    environment = Environment(python="3.11", services=services_of({"redis": {}, "postgresql": {}, "http": {}}))
    return (await built_environment(environment, build_environment)).services


async def living(sandbox: NamespaceSandbox | DockerSandbox) -> None:
    """Run ``true`` in a sandbox that lives."""
    assert (await sandbox.exec(["true"])).exit_code == 0


async def crowd(factory: NamespaceSandboxes, tree: str) -> dict[str, float]:
    """Sandboxes that all live at once, each with a waiting command: how much memory this machine has less for each."""
    before = available()
    boxes = await asyncio.gather(*(factory.create(SandboxSpec(tree=tree)) for _ in range(CROWD)))
    began = time.perf_counter()
    waiting = [asyncio.ensure_future(box.exec(["sh", "-c", "sleep 2; echo right"], timeout_s=60)) for box in boxes]
    await asyncio.sleep(1.5)
    during = available()
    right = sum(done.stdout == b"right\n" for done in await asyncio.gather(*waiting))
    seconds = time.perf_counter() - began
    for box in boxes:
        await box.close()
    return {"sandboxes": CROWD, "right": right, "seconds": round(seconds, 2), "mb_each": (before - during) / CROWD}


def available() -> float:
    """Megabytes of memory that this machine could still give."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) / 1000


def bwrap_by_hand(scratch: Path, lower: Path) -> Callable[[], None]:
    """``bwrap`` with the same isolation and an overlay, and nothing around it: no limits, no streams, no snapshot."""
    upper, work = scratch / "upper", scratch / "work"
    upper.mkdir()
    work.mkdir()
    command = [str(find_bwrap()), *isolation_arguments(), *part_arguments(system_parts(Path("/usr")))]
    command += [*fresh_arguments(1 << 30), *overlay_arguments([lower], upper, work), "--", "true"]
    return lambda: run(command)


def run(command: list[str]) -> None:
    """Run a program that must succeed, without its output."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


def docker(host: str) -> list[str]:
    """The docker client for an engine."""
    return [shutil.which("docker") or "docker", "--host", host]


def import_image(host: str) -> None:
    """Make an image that holds ``true``, ``sleep`` and the libraries that they need, from this machine's files."""
    programs = {f"/bin/{name}": shutil.which(name) or f"/bin/{name}" for name in ("true", "sleep")}
    listed = subprocess.run(["ldd", *programs.values()], capture_output=True, text=True, check=False).stdout
    files = {**programs, **{word: word for word in listed.split() if word.startswith("/") and not word.endswith(":")}}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", dereference=True) as archive:
        for name, source in files.items():
            archive.add(source, name.lstrip("/"))
    subprocess.run([*docker(host), "import", "-", IMAGE], input=packed.getvalue(), check=True, capture_output=True)


@contextmanager
def container(host: str) -> Iterator[str]:
    """A container that does nothing but live."""
    started = [*docker(host), "run", "--detach", "--network", "none", IMAGE, "/bin/sleep", "100000"]
    name = subprocess.run(started, check=True, capture_output=True, text=True).stdout.strip()
    try:
        yield name
    finally:
        run([*docker(host), "rm", "--force", name])


def peer(python: str, repeats: int, folder: Path) -> dict[str, list[float]]:
    """Milliseconds that SWE-ReX takes for the same, in an interpreter that has it."""
    (folder / "peer.py").write_text(PEER)
    command = [python, str(folder / "peer.py"), str(repeats)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def with_swe_rex(folder: Path) -> str:
    """A new interpreter with SWE-ReX, from PyPI."""
    venv.create(folder / "peer", with_pip=True)
    python = str(folder / "peer" / "bin" / "python")
    run([python, "-m", "pip", "install", "-q", "swe-rex"])
    return python


async def timed(work: Callable[[], Awaitable[None] | None]) -> float:
    """Milliseconds that one call takes."""
    began = time.perf_counter()
    waiting = work()
    if waiting is not None:
        await waiting
    return (time.perf_counter() - began) * 1000


async def measure(repeats: int, host: str | None, folder: Path) -> tuple[dict[str, list[float]], dict[str, float]]:
    """All samples, taken in turn so that a busy moment strikes all of them alike; and what many at once take."""
    store = ObjectStore(folder / "objects")
    (folder / "files").mkdir()
    tree = make_tree(store, folder / "files")
    factory = NamespaceSandboxes(store, cache=folder / "cache")
    hand = next(iter(folders())) / folder.name
    hand.mkdir()
    alive = await factory.create(SandboxSpec(tree=tree))
    beside = await servers()
    cases: dict[str, Callable[[], Awaitable[None] | None]] = {
        "create_true_diff_destroy": lambda: ours(factory, tree, diff=True),
        "create_true_destroy": lambda: ours(factory, tree, diff=False),
        "command_in_living_sandbox": lambda: living(alive),
        "create_with_services_true_destroy": lambda: ours(factory, tree, diff=False, services=beside),
        "floor_bwrap_overlay_true": bwrap_by_hand(hand, folder / "files"),
        "floor_fork_exec_true": lambda: run(["true"]),
        "cli_help": lambda: run([sys.executable, "-m", "patchgym", "--help"]),
        "floor_python_start": lambda: run([sys.executable, "-c", "pass"]),
    }
    with ExitStack() as stack:
        if host is not None:
            engine = DockerSandboxes(store, cache=folder / "cache", host=host)
            stack.callback(engine.close)
            contained = await engine.create(SandboxSpec(tree=tree))
            peer = stack.enter_context(container(host))
            cases |= {
                "docker_run_true": lambda: run([*docker(host), "run", "--rm", "--network", "none", IMAGE, "/bin/true"]),
                "docker_exec_true": lambda: run([*docker(host), "exec", peer, "/bin/true"]),
                "our_container_create_true_diff_destroy": lambda: ours(engine, tree, diff=True),
                "our_container_with_services": lambda: ours(engine, tree, diff=False, services=beside),
                "our_container_command": lambda: living(contained),
            }
        samples = await interleaved(cases, repeats)
        if host is not None:
            await contained.close()
    await alive.close()
    together = await crowd(factory, tree)
    factory.close()
    remove_tree(hand)
    return samples, together


async def interleaved(cases: dict[str, Callable[[], Awaitable[None] | None]], repeats: int) -> dict[str, list[float]]:
    """Milliseconds of each case, again and again in turn."""
    samples: dict[str, list[float]] = {name: [] for name in cases}
    order = list(cases)
    for turn in range(repeats + 1):
        for name in order:
            took = await timed(cases[name])
            if turn:  # the first turn fills caches
                samples[name].append(took)
        order.append(order.pop(0))  # so that what one case leaves for the kernel to do strikes every other
    return samples


def report(samples: dict[str, list[float]], together: dict[str, float], repeats: int) -> dict[str, object]:
    """Medians, fastest, ratios and what the machine is."""
    p50 = {name: round(statistics.median(taken), 2) for name, taken in samples.items()}
    mine = statistics.median(samples["create_true_diff_destroy"])
    peer = samples.get("docker_run_true")
    return {
        "repeats": repeats,
        "p50_ms": p50,
        "fastest_ms": {name: round(min(taken), 2) for name, taken in samples.items()},
        "ours_over_floor": round(mine / statistics.median(samples["floor_bwrap_overlay_true"]), 2),
        "docker_over_ours": round(statistics.median(peer) / mine, 1) if peer else None,
        "living_over_fork_exec_ms": round(p50["command_in_living_sandbox"] - p50["floor_fork_exec_true"], 2),
        "at_once": {name: round(value, 1) for name, value in together.items()},
        "machine": {
            "cores": os.cpu_count(),
            "load": [round(load, 2) for load in os.getloadavg()],
            "kernel": platform.release(),
            "python": platform.python_version(),
            "user": os.geteuid(),
        },
    }


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--docker-host", help="an engine that answers, such as unix:///run/docker.sock")
    parser.add_argument("--start-dockerd", action="store_true", help="start and stop an engine for this")
    parser.add_argument("--peer-python", help="an interpreter that has SWE-ReX")
    parser.add_argument("--install-peer", action="store_true", help="make one for this")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        host = stack.enter_context(own_engine()) if options.start_dockerd else options.docker_host
        if host is not None:
            import_image(host)
        samples, together = asyncio.run(measure(options.repeats, host, folder))
        python = with_swe_rex(folder) if options.install_peer else options.peer_python
        if python is not None:
            samples |= peer(python, options.repeats, folder)
    print(json.dumps(report(samples, together, options.repeats), indent=2))


if __name__ == "__main__":
    main()
