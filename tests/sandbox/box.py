"""A sandbox for tests that are not async: real commands in a real sandbox, one call each."""

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

from patchgym.content import Entry, ObjectStore
from patchgym.sandbox import ExecResult, NamespaceSandbox, NamespaceSandboxes, SandboxSpec
from patchgym.sandbox.docker import DockerSandbox, DockerSandboxes

T = TypeVar("T")
Factory = NamespaceSandboxes | DockerSandboxes
Isolated = NamespaceSandbox | DockerSandbox


class Box:
    """A sandbox driven by an event loop of its own."""

    def __init__(self, runner: asyncio.Runner, sandbox: Isolated) -> None:
        self.runner, self.sandbox = runner, sandbox

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def exec(self, *argv: str, **options: Any) -> ExecResult:
        return self.wait(self.sandbox.exec(argv, **options))

    def sh(self, script: str, **options: Any) -> ExecResult:
        return self.exec("sh", "-c", script, **options)

    def out(self, script: str) -> str:
        """What a shell script that succeeds prints."""
        done = self.sh(script)
        assert (done.exit_code, done.stderr) == (0, b""), done
        return done.stdout.decode()

    def read(self, path: str) -> bytes:
        return self.wait(self.sandbox.read(path))

    def write(self, path: str, data: bytes) -> None:
        self.wait(self.sandbox.write(path, data))

    def snapshot(self) -> str:
        return self.wait(self.sandbox.snapshot())

    def diff(self) -> str:
        return self.wait(self.sandbox.diff())

    def fork(self) -> "Box":
        return Box(self.runner, cast(Isolated, self.wait(self.sandbox.fork())))

    def close(self) -> None:
        self.wait(self.sandbox.close())


class Boxes:
    """Makes boxes and closes them all at the end."""

    def __init__(self, factory: Factory, environment: Path) -> None:
        self.factory, self.environment = factory, environment
        self.store: ObjectStore = factory.objects
        self.runner = asyncio.Runner()
        self._made: list[Box] = []

    def tree(self, files: dict[str, bytes], folder: Path) -> str:
        """The id of a tree with these files, by way of ``folder``."""
        for path, data in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        return self.store.ingest(folder)

    def open(self, tree: str, **options: Any) -> Box:
        spec = SandboxSpec(tree=tree, environment=self.environment, **options)
        self._made.append(Box(self.runner, cast(Isolated, self.runner.run(self.factory.create(spec)))))
        return self._made[-1]

    def close(self) -> None:
        for box in self._made:
            box.close()
        self.runner.close()


class Counting(ObjectStore):
    """Remembers the names of the files that it was asked to store."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.read: list[str] = []

    def entry_at(self, folder: int, name: str) -> Entry | None:
        self.read.append(name)
        return super().entry_at(folder, name)


def processes_with(marker: str) -> list[int]:
    """Host pids whose command line holds ``marker``."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and marker.encode() in Path("/proc", name, "cmdline").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return found
