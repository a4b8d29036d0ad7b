"""An update on disk while it is made: one that is killed goes on, and one that is done can be made again.

::

    UPDATE/update.json        what decides its numbers (UpdateIdentity)
    UPDATE/rows.safetensors   its rows
    UPDATE/steps.jsonl        each step that was made (StepLine)
    UPDATE/step-K/            weights, optimizer and random states after step K; the last two of them
    UPDATE/report.json        its report, once it is done

A state is written beside its place and then renamed, so that it is whole or not there. Its tensors are a safetensors
file and the rest is JSON: nothing here is ever unpickled.
"""

import hashlib
import json
import os
import random
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar, Self

import safetensors
import safetensors.torch
import torch
from pydantic import JsonValue
from torch import Tensor

from patchgym.config import differing_keys
from patchgym.content import disk_errors
from patchgym.errors import ConfigError, DataError
from patchgym.records import VersionedRecord
from patchgym.store.jsonl import append_line, cut_torn_line, read_lines
from patchgym.store.lock import lock_folder
from patchgym.store.whole import write_whole
from patchgym.train.model import AdaptedModel
from patchgym.train.report import SamplerGap, StepReport, TrainSettings, UpdateReport
from patchgym.train.rowfile import read_rows, rows_bytes, rows_hash
from patchgym.train.rows import RowSet

_IDENTITY, _ROWS, _STEPS, _REPORT = "update.json", "rows.safetensors", "steps.jsonl", "report.json"
_TENSORS, _TOLD = "state.safetensors", "state.json"
_KEPT = 2
_FOLDER = re.compile(r"step-(\d+)")
_FREE = {"settings.save_every", "settings.keep_states", "threads"}
_PACKAGES = ("patchgym", "torch", "transformers", "peft")


class UpdateIdentity(VersionedRecord):
    """``update.json``: everything that decides an update's numbers.

    ``start`` is where the starting version was loaded from, ``parent`` that version and ``base`` the model underneath.
    ``rows`` is ``rowfile.rows_hash``, ``parameters`` are the names of what is trained, in order. ``versions`` are of
    the packages, and under ``code`` the hash of ``patchgym.train`` itself. ``threads`` is the number of threads that
    torch shared its sums among, and so the order of them (None: an update of before this was written down).
    """

    UNHASHED: ClassVar[frozenset[str]] = frozenset({"start"})

    algorithm: str
    settings: dict[str, JsonValue]
    start: str
    parent: str
    base: str
    rows: str
    parameters: tuple[str, ...]
    versions: dict[str, str]
    threads: int | None = None


class StepLine(VersionedRecord):
    """A line of ``steps.jsonl``: optimizer step ``step``, counted from 1. ``gap`` is the sampler gap of the first one.
    ``weights`` has for each parameter (``UpdateIdentity.parameters``) the first 16 hex digits of the SHA-256 of its
    values after the step, and their norm; None where no state was written."""

    step: int
    report: StepReport
    gap: SamplerGap | None = None
    weights: tuple[tuple[str, float], ...] | None = None


@dataclass
class Reached:
    """How far an update is: its steps so far, and the wall time that they took in seconds."""

    lines: list[StepLine]
    seconds: float

    @property
    def reports(self) -> list[StepReport]:
        """What each step came to."""
        return [line.report for line in self.lines]


def identity_of(
    rows: RowSet, model: AdaptedModel, algorithm: str, settings: TrainSettings, start: str
) -> UpdateIdentity:
    """What decides the numbers of an update that is about to be made."""
    return UpdateIdentity(
        algorithm=algorithm,
        settings=settings.model_dump(mode="json"),
        start=str(Path(start).resolve()) if Path(start).is_dir() else start,
        parent=model.version,
        base=model.base,
        rows=rows_hash(rows),
        parameters=tuple(model.trainable()),
        versions=versions_here(),
        threads=torch.get_num_threads(),
    )


@contextmanager
def threads_of(identity: UpdateIdentity) -> Iterator[None]:
    """While this is open, torch shares its sums among as many threads as it did for that update."""
    before = torch.get_num_threads()
    torch.set_num_threads(identity.threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def versions_here() -> dict[str, str]:
    """The versions that decide an update's numbers, as this process began with them."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return {**found, "code": digest.hexdigest()[:16]}


def differing_versions(kept: Mapping[str, str]) -> list[str]:
    """The versions that decide numbers and are others here, as ``name: there, here``."""
    here = versions_here()
    return [
        f"{name}: {kept.get(name, 'none')} then, {here.get(name, 'none')} here"
        for name in sorted(kept.keys() | here.keys())
        if kept.get(name) != here.get(name)
    ]


def weight_figures(model: AdaptedModel) -> tuple[tuple[str, float], ...]:
    """A digest and the norm of every trained parameter, as ``StepLine.weights``."""
    return tuple((_digest(part.detach()), part.detach().double().norm().item()) for part in model.trainable().values())


class UpdateState:
    """The folder of one update, open for writing; one process at a time has it."""

    def __init__(self, path: Path, held: ExitStack, settings: TrainSettings) -> None:
        self.path = path
        self._held = held
        self._settings = settings

    @classmethod
    def open(cls, path: Path, identity: UpdateIdentity, rows: RowSet, settings: TrainSettings) -> Self:
        """Begin an update at ``path``, or go on with the one that is there: with its number of threads, until
        ``close``.

        Raises:
            ConfigError: the one there has other rows, settings, another base or other code; the keys are named.
            UsageError: another process works on it.
            DataError: it is damaged.
            StorageError: the disk is full or not writable.
        """
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            lock = lock_folder(path)
            with ExitStack() as undo:
                undo.callback(os.close, lock)
                if (path / _IDENTITY).is_file():
                    begun = read_identity(path)
                    _must_be_the_same(path, begun, identity)
                    undo.enter_context(threads_of(begun))
                else:
                    write_whole(path / _ROWS, rows_bytes(rows))
                    write_whole(path / _IDENTITY, identity.model_dump_json(indent=1).encode() + b"\n")
                for half in path.glob(".step-*"):
                    shutil.rmtree(half)
                cut_torn_line(path / _STEPS)
                return cls(path, undo.pop_all(), settings)

    def done(self) -> UpdateReport | None:
        """The report of the update, if it is done.

        Raises:
            DataError: it is damaged.
        """
        file = self.path / _REPORT
        return UpdateReport.from_line(file.read_bytes(), where=str(file)) if file.is_file() else None

    def resume(self, model: AdaptedModel, optimizer: torch.optim.Optimizer) -> Reached:
        """Take up the last state that is whole, if there is one: weights, optimizer and random states are then as they
        were after its step. Later lines of ``steps.jsonl`` go, for those steps are made again.

        Raises:
            StorageError: the disk is full or not writable.
        """
        lines = read_steps(self.path)
        reached = restore(self.path, len(lines), model, optimizer)
        if reached < len(lines):
            write_whole(self.path / _STEPS, "".join(f"{line.to_line()}\n" for line in lines[:reached]).encode())
        return Reached(lines[:reached], sum(line.report.seconds for line in lines[:reached]))

    def keep(
        self,
        step: int,
        last: int,
        report: StepReport,
        gap: SamplerGap | None,
        model: AdaptedModel,
        optimizer: torch.optim.Optimizer,
    ) -> None:
        """Write down step ``step`` of ``last``; every ``save_every`` steps, and after the last one, with its state.

        Raises:
            StorageError: the disk is full or not writable. The states before stay.
        """
        saved = step % self._settings.save_every == 0 or step == last
        line = StepLine(step=step, report=report, gap=gap, weights=weight_figures(model) if saved else None)
        append_line(self.path / _STEPS, line.to_line())
        if saved:
            write_state(self.path, step, model, optimizer)
            for _, folder in _states(self.path)[:-_KEPT] if not self._settings.keep_states else ():
                shutil.rmtree(folder)

    def finish(self, report: UpdateReport) -> None:
        """The update is done: its states go, unless ``keep_states`` keeps them. Rows, settings and steps stay.

        Raises:
            StorageError: the disk is full or not writable.
        """
        write_whole(self.path / _REPORT, report.model_dump_json(indent=1).encode() + b"\n")
        for _, folder in _states(self.path) if not self._settings.keep_states else ():
            shutil.rmtree(folder)

    def close(self) -> None:
        """Give up the right to write. May be called twice."""
        self._held.close()


def read_identity(path: Path) -> UpdateIdentity:
    """``update.json`` of an update's folder.

    Raises:
        DataError: it is damaged, or there is none.
    """
    try:
        line = (path / _IDENTITY).read_bytes()
    except OSError as error:
        raise DataError(f"There is no update at {path}", why=f"{_IDENTITY}: {error.strerror}.") from error
    return UpdateIdentity.from_line(line, where=str(path / _IDENTITY))


def read_update_rows(path: Path) -> RowSet:
    """The rows of an update's folder.

    Raises:
        DataError: they are damaged.
    """
    return read_rows(path / _ROWS)


def read_steps(path: Path) -> list[StepLine]:
    """The steps of an update's folder, up to the first gap in their numbers.

    Raises:
        DataError: a line is damaged.
    """
    lines: list[StepLine] = []
    for number, (_, line) in enumerate(read_lines(path / _STEPS), start=1):
        found = StepLine.from_line(line, where=f"{path / _STEPS}, line {number}")
        if found.step != number:
            break
        lines.append(found)
    return lines


def restore(path: Path, last: int, model: AdaptedModel, optimizer: torch.optim.Optimizer) -> int:
    """Load the latest state of an update's folder that is whole and of no later step than ``last``. Returns its step;
    0, and nothing is touched, where there is none."""
    for step, folder in reversed(_states(path)):
        if step <= last and _is_whole(folder):
            _load_state(folder, model, optimizer)
            return step
    return 0


def write_state(path: Path, step: int, model: AdaptedModel, optimizer: torch.optim.Optimizer) -> None:
    """Write the state after step ``step`` into an update's folder, whole or not at all.

    Raises:
        StorageError: the disk is full or not writable.
    """
    tensors = {f"weights/{name}": part.detach() for name, part in model.trainable().items()}
    state = optimizer.state_dict()
    told: dict[str, Any] = {"groups": state["param_groups"], "numbers": {}, "python": random.getstate()}
    for place, values in state["state"].items():
        for key, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer/{place}/{key}"] = value
            else:
                told["numbers"][f"{place}/{key}"] = value
    tensors["random/cpu"] = torch.get_rng_state()
    for device in sorted({part.device.index for part in model.trainable().values() if part.is_cuda}):
        tensors[f"random/cuda/{device}"] = torch.cuda.get_rng_state(device)
    target = path / f"step-{step}"
    with disk_errors(target), _os_errors():
        scratch = Path(tempfile.mkdtemp(prefix=f".step-{step}-", dir=path))
        try:
            whole = {name: part.detach().cpu().contiguous() for name, part in tensors.items()}
            safetensors.torch.save_file(whole, scratch / _TENSORS)
            told["sha256"] = _file_digest(scratch / _TENSORS)
            (scratch / _TOLD).write_text(json.dumps(told), encoding="utf-8")
            if target.is_dir():  # of a try that ended before its line was written
                shutil.rmtree(target)
            scratch.rename(target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _load_state(folder: Path, model: AdaptedModel, optimizer: torch.optim.Optimizer) -> None:
    told = json.loads((folder / _TOLD).read_bytes())
    tensors = safetensors.torch.load_file(folder / _TENSORS)
    with torch.no_grad():
        for name, part in model.trainable().items():
            part.copy_(tensors[f"weights/{name}"])
    model.moved()
    state: dict[int, dict[str, Any]] = {}
    for name, value in [*tensors.items(), *((f"optimizer/{key}", value) for key, value in told["numbers"].items())]:
        kind, _, rest = name.partition("/")
        if kind == "optimizer":
            place, _, key = rest.partition("/")
            state.setdefault(int(place), {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": told["groups"]})
    random.setstate((told["python"][0], tuple(told["python"][1]), told["python"][2]))
    torch.set_rng_state(tensors["random/cpu"])
    for device in range(torch.cuda.device_count()) if torch.cuda.is_available() else ():
        if f"random/cuda/{device}" in tensors:
            torch.cuda.set_rng_state(tensors[f"random/cuda/{device}"], device)


def _states(path: Path) -> list[tuple[int, Path]]:
    """The states of a folder, by their steps, in order."""
    found = ((_FOLDER.fullmatch(entry.name), entry) for entry in path.iterdir())
    return sorted((int(match[1]), entry) for match, entry in found if match is not None)


def _is_whole(folder: Path) -> bool:
    try:
        told = json.loads((folder / _TOLD).read_bytes())
        return bool(told["sha256"] == _file_digest(folder / _TENSORS))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _must_be_the_same(path: Path, kept: UpdateIdentity, wanted: UpdateIdentity) -> None:
    old, new = (one.model_dump(mode="json", exclude={"start"}) for one in (kept, wanted))
    keys = [key for key in differing_keys(old, new) if key not in _FREE]
    if keys:
        shown = ", ".join(keys[:5]) + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
        raise ConfigError(
            f"The update at {path} was begun with something else",
            why=f"These differ: {shown}.",
            mend="Repeat what it was begun with to go on, or remove that folder to begin again.",
        )


@contextmanager
def _os_errors() -> Iterator[None]:
    """What safetensors says of a disk, as the OSError that it was."""
    try:
        yield
    except safetensors.SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), str(error)) from error


def _digest(values: Tensor) -> str:
    return hashlib.sha256(values.cpu().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()[:16]


def _file_digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
