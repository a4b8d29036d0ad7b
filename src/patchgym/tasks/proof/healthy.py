"""What is known of a healthy suite, and where a build keeps it."""

import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from patchgym.content import disk_errors
from patchgym.records import Environment, Outcome
from patchgym.store.whole import write_whole
from patchgym.testrun import Coverage

_LEAST_SECONDS, _SLOWER = 10.0, 5.0


@dataclass(frozen=True)
class Healthy:
    """The suite of an unbroken tree, over several runs, the last of them stressed: ids of the tests that passed every
    time, the outcomes of those that did not agree (``flaky``: among them tests that lean on one that ran before, or on
    how long something takes), how many tests never passed, and which of the passing tests ran which lines (None where
    watching disturbs most of them). ``seconds`` is the wall time of one run."""

    passed: frozenset[str]
    flaky: dict[str, tuple[Outcome, ...]]
    failing: int
    coverage: Coverage | None
    seconds: float

    def patience(self, most: float) -> float:
        """Seconds to wait for some of its tests on a broken tree, at most ``most``. Bugs that never end are many, and
        waiting for each as long as a task may take costs more than all the others. What is left is ample: an outcome
        must not depend on how busy the machine is."""
        return min(most, _LEAST_SECONDS + _SLOWER * self.seconds)


_HEALTHY = TypeAdapter(Healthy)


class Suites:
    """Healthy suites in a folder, one file each: a build that goes on does not run them again."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is made with the first suite."""
        self._folder = folder

    def find(self, tree: str, environment: Environment, runs: int) -> Healthy | None:
        """What was kept of this tree in this environment over so many runs; None for nothing."""
        path = self._path(tree, environment, runs)
        return _HEALTHY.validate_json(zlib.decompress(path.read_bytes())) if path.is_file() else None

    def keep(self, tree: str, environment: Environment, runs: int, found: Healthy) -> None:
        """Keep what was found out, whole or not at all.

        Raises:
            StorageError: the disk is full or not writable.
        """
        path = self._path(tree, environment, runs)
        with disk_errors(path):
            self._folder.mkdir(exist_ok=True)
        write_whole(path, zlib.compress(_HEALTHY.dump_json(found), 1))

    def _path(self, tree: str, environment: Environment, runs: int) -> Path:
        key = f"{tree}\n{environment.model_dump_json()}\n{runs}"
        return self._folder / hashlib.sha256(key.encode()).hexdigest()
