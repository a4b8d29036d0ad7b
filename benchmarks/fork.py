"""What states of a workspace cost: a snapshot after one edit, and forks with few and many changed files.

Prints one JSON document: medians in milliseconds of interleaved repeats in a repository of 5,000 files, beside the
floor (reading what a layer lists) and the peers (``git add -A; git write-tree`` on the same edit, ``cp -a`` of the same
files).
Claims: a snapshot after one edit at most 3 ms; a fork at most 2 ms, with 10 and with 1,000 changed files alike.

    python benchmarks/fork.py [--repeats 20]
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from patchgym.content import ObjectStore
from patchgym.sandbox import NamespaceSandbox, NamespaceSandboxes, SandboxSpec
from patchgym.sandbox.scratch import folders

FILES = 5000


def fill(folder: Path) -> None:
    """A repository of ``FILES`` files of 8 KB."""
    for index in range(FILES):
        place = folder / f"package{index % 50}" / f"part{index % 7}" / f"module{index}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"VALUE = {index}\n" * (8000 // (9 + len(str(index)))))


def git(folder: Path, *arguments: str) -> None:
    """Run git, which must succeed, without its output."""
    command = ["git", "-c", "user.name=b", "-c", "user.email=b@b", *arguments]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def write_tree(repository: Path) -> None:
    """What git takes to know the tree id of a working tree."""
    git(repository, "add", "--all")
    git(repository, "write-tree")


def once(work: Callable[[], object]) -> float:
    """Milliseconds that a call takes."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


async def snapshot(sandbox: NamespaceSandbox, number: int) -> float:
    """One edit, and the time that the snapshot after it takes."""
    await sandbox.write("package3/part3/module3.py", f"EDIT = {number}\n".encode())
    began = time.perf_counter()
    await sandbox.snapshot()
    return (time.perf_counter() - began) * 1000


async def fork(sandbox: NamespaceSandbox, changed: int, number: int) -> float:
    """Change files, and the time that the fork after it takes."""
    script = f"i=0; while [ $i -lt {changed} ]; do echo {number} > new$i; i=$((i+1)); done"
    await sandbox.exec(["sh", "-c", script])
    began = time.perf_counter()
    twin = await sandbox.fork()
    took = (time.perf_counter() - began) * 1000
    await twin.close()
    return took


async def measure(repeats: int, scratch: Path) -> dict[str, list[float]]:
    """All samples, taken in turn so that a busy moment strikes all of them alike."""
    plain = scratch / "plain"
    plain.mkdir()
    fill(plain)
    store = ObjectStore(scratch / "objects")
    tree = store.ingest(plain)
    repository = scratch / "repository"
    shutil.copytree(plain, repository)
    git(repository, "init", "--quiet")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "all")
    factory = NamespaceSandboxes(store, cache=scratch / "cache")
    samples: dict[str, list[float]] = {
        name: []
        for name in (
            *("snapshot_one_edit", "floor_walk", "git_add_write_tree", "fork_10_changed", "fork_1000_changed", "cp_a"),
        )
    }
    few, many, edited = [await factory.create(SandboxSpec(tree=tree)) for _ in range(3)]
    for number in range(repeats + 1):
        taken = {
            "snapshot_one_edit": await snapshot(edited, number),
            "floor_walk": once(lambda: [list(os.scandir(root)) for root, _, _ in os.walk(edited._overlay.upper)]),
            "fork_10_changed": await fork(few, 10, number),
            "fork_1000_changed": await fork(many, 1000, number),
        }
        (repository / "package3" / "part3" / "module3.py").write_text(f"EDIT = {number}\n")
        taken["git_add_write_tree"] = once(lambda: write_tree(repository))
        copy = scratch / "copy"
        taken["cp_a"] = once(lambda: subprocess.run(["cp", "-a", plain, scratch / "copy"], check=True))
        shutil.rmtree(copy)
        for name, took in taken.items():
            if number:  # the first turn fills caches
                samples[name].append(took)
    for sandbox in (few, many, edited):
        await sandbox.close()
    factory.close()
    return samples


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="benchmark-", dir=next(iter(folders()))) as folder:
        samples = asyncio.run(measure(options.repeats, Path(folder)))
    p50 = {name: round(statistics.median(taken), 2) for name, taken in samples.items()}
    report = {
        "repeats": options.repeats,
        "files": FILES,
        "p50_ms": p50,
        "slowest_ms": {name: round(max(taken), 2) for name, taken in samples.items()},
        "git_over_snapshot": round(p50["git_add_write_tree"] / p50["snapshot_one_edit"], 1),
        "cp_over_fork": round(p50["cp_a"] / p50["fork_1000_changed"], 1),
        "machine": {
            "cores": os.cpu_count(),
            "load": [round(load, 2) for load in os.getloadavg()],
            "kernel": platform.release(),
            "python": platform.python_version(),
            "user": os.geteuid(),
        },
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
