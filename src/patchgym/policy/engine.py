"""Batched generation: one thread that owns the model, and rows that come and go between its steps.

A step is one forward pass: one token for every row (*decode*), or a stretch of unread prompt for rows that have about
the same left to read (*prefill*). A row joins when there is room, is prefilled up to its last token, and decodes with
the others until it ends; its keys and values are then kept for the next turn of its conversation.
"""

import atexit
import random
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import torch

from patchgym.errors import EndpointError
from patchgym.policy.draw import draw
from patchgym.policy.slots import KeyValues, SlotCache

_PREFILL_TOKENS = 2048
_WORTH_WAITING = 16


@dataclass(frozen=True)
class Request:
    """A context to continue: ids, at most how many more, and how to draw them."""

    ids: tuple[int, ...]
    max_new: int
    temperature: float
    top_p: float
    seed: int


@dataclass(frozen=True)
class Completion:
    """What was drawn. ``stopped``: the last id ended the answer; ``cached``: ids of the context that were not read
    again."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stopped: bool
    cached: int


@dataclass(frozen=True, eq=False)
class _Parked:
    """A sequence whose keys and values are kept."""

    ids: list[int]
    known: KeyValues

    @property
    def done(self) -> int:
        return len(self.ids)


@dataclass(eq=False)
class _Row:
    """A request at work. The first ``done`` of ``ids`` have their keys and values in its slots."""

    request: Request
    future: "Future[Completion]"
    ids: list[int]
    uniform: random.Random
    done: int = 0
    cached: int = 0
    source: "_Row | _Parked | None" = None
    logprobs: list[float] = field(default_factory=list)

    @property
    def unread(self) -> int:
        """Prompt tokens to prefill; the last one is left to the first decode step, which draws from its logits."""
        return len(self.ids) - 1 - self.done

    def seek(self, sources: "Sequence[_Row | _Parked]") -> None:
        """Find the source that shares the longest start with this row; all but the last token can come from it."""
        self.done, self.source = 0, None
        for source in sources:
            shared = min(_shared(self.ids, source.ids), source.done, len(self.ids) - 1)
            if shared > self.done:
                self.done, self.source = shared, source
        self.cached = self.done


@dataclass(frozen=True)
class _Swap:
    model: torch.nn.Module
    stop_ids: frozenset[int]
    future: "Future[None]"


class Engine:
    """Generates for any number of concurrent requests with one model.

    Which rows share a step never changes the numbers that a row draws with: each request draws from its own generator,
    seeded by its seed and the length of its context. The logits do differ in their last bits with the shapes of a step,
    so that on rare occasions a draw that falls on an edge comes out differently.
    """

    def __init__(
        self, model: torch.nn.Module, stop_ids: frozenset[int], *, max_batch: int = 16, kept_tokens: int = 24_000
    ) -> None:
        """``max_batch`` rows at most work at once; ``kept_tokens`` bounds the keys and values kept between turns."""
        self._model, self._stop_ids = model, stop_ids
        self._max_batch, self._kept_tokens = max_batch, kept_tokens
        self._cache, self._rows, self._parked = SlotCache(), list[_Row](), list[_Parked]()
        self._jobs: deque[_Row | _Swap] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="patchgym-engine", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # an interpreter that ends under a thread inside torch aborts

    def submit(self, request: Request) -> "Future[Completion]":
        """Queue a request. A future that is cancelled frees its row at the next step.

        Raises (through the future):
            EndpointError: the engine is closed, ran out of memory, or the model's logits are not numbers.
        """
        future: Future[Completion] = Future()
        uniform = random.Random(f"{request.seed}/{len(request.ids)}")
        self._queue(_Row(request, future, list(request.ids), uniform))
        return future

    def swap(self, model: torch.nn.Module, stop_ids: frozenset[int]) -> "Future[None]":
        """Go on with another model once all rows now queued or at work are finished; what was kept is dropped."""
        future: Future[None] = Future()
        self._queue(_Swap(model, stop_ids, future))
        return future

    def rest(self) -> "Future[None]":
        """Give back the memory of what was kept once all rows now queued or at work are finished."""
        return self.swap(self._model, self._stop_ids)

    def close(self) -> None:
        """End the thread; requests that are not finished fail."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        atexit.unregister(self.close)

    def _queue(self, job: "_Row | _Swap") -> None:
        with self._changed:
            if not self._closed:
                self._jobs.append(job)
                self._changed.notify()
                return
        job.future.set_exception(_failure("it is closed"))

    # Everything below runs in the engine's thread.

    def _run(self) -> None:
        try:
            while self._wait():
                try:
                    with torch.inference_mode():
                        self._admit()
                        self._decode()
                except (RuntimeError, MemoryError) as error:  # torch reports its own failures, and memory, so
                    self._drop(self._rows, f"{type(error).__name__}: {error}")
                    self._cache, self._rows, self._parked = SlotCache(), [], []
        finally:
            # Whatever ends this thread, nobody may be left waiting for it.
            with self._changed:
                self._closed = True
                left, self._jobs = list(self._jobs), deque()
            self._drop([*self._rows, *left], "it was closed")

    def _wait(self) -> bool:
        """Sleep until there is work; False once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._rows or self._jobs)
            return not self._closed

    def _drop(self, jobs: "Sequence[_Row | _Swap]", why: str) -> None:
        for job in jobs:
            if not job.future.done() and job.future.set_running_or_notify_cancel():
                job.future.set_exception(_failure(why))

    def _admit(self) -> None:
        """Take queued requests into free rows and prefill them, in waves: a request whose context starts like that of
        one in the wave (samples of one task) waits for the next, and copies what was read for the first."""
        while not self._closed and (wave := self._next_wave()):
            first = len(self._rows)
            self._rows += sorted(wave, key=lambda row: row.unread)
            for at, row in enumerate(self._rows[first:], first):
                if isinstance(row.source, _Row):
                    self._cache.copy(self._rows.index(row.source), at, row.done)
                elif row.source is not None:
                    self._cache.write(at, row.source.known, row.done)
            # What a row now holds to the end need not be kept twice.
            taken = [row.source for row in self._rows[first:] if row.source and row.source.done == row.done]
            self._parked = [entry for entry in self._parked if entry not in taken]
            for row in self._rows[first:]:
                row.source = None
            while first < len(self._rows) and not self._closed:
                first += self._prefill(first)

    def _next_wave(self) -> list[_Row]:
        wave: list[_Row] = []
        with self._changed:
            if self._jobs and isinstance(swap := self._jobs[0], _Swap) and not self._rows:
                self._jobs.popleft()
                if swap.future.set_running_or_notify_cancel():
                    self._model, self._stop_ids, self._cache, self._parked = swap.model, swap.stop_ids, SlotCache(), []
                    swap.future.set_result(None)
            later: list[_Row] = []
            while self._jobs and isinstance(row := self._jobs[0], _Row):
                if len(self._rows) + len(wave) == self._max_batch:
                    break
                self._jobs.popleft()
                row.seek([*self._rows, *self._parked])
                if any(_shared(row.ids, other.ids) >= row.done + _WORTH_WAITING for other in wave):
                    later.append(row)
                elif not row.future.cancelled():
                    wave.append(row)
            self._jobs.extendleft(reversed(later))
        return wave

    def _prefill(self, first: int) -> int:
        """Read on in the rows from ``first`` that have about the same left; returns how many of them are through."""
        left = [row.unread for row in self._rows[first:]]
        count = 1
        while count < len(left) and left[count] <= 1.25 * left[0] and left[count] * (count + 1) <= _PREFILL_TOKENS:
            count += 1
        rows, length = self._rows[first : first + count], min(max(left[:count]), _PREFILL_TOKENS)
        if length:
            # A shorter row repeats its last token in the same place, which writes the same keys and values again.
            places = [[min(row.done + at, len(row.ids) - 2) for at in range(length)] for row in rows]
            self._forward(first, [[row.ids[at] for at in seen] for row, seen in zip(rows, places, strict=True)], places)
            for row in rows:
                row.done += min(length, row.unread)
        return count if not any(row.unread for row in rows) else 0

    def _decode(self) -> None:
        """One more token for every row; rows that end leave."""
        for at in reversed(range(len(self._rows))):
            if self._rows[at].future.cancelled():
                self._leave(at)
        rows = self._rows
        if not rows or self._closed:
            return
        logits_BV = self._forward(0, [[row.ids[row.done]] for row in rows], [[row.done] for row in rows])
        if not bool(torch.isfinite(logits_BV).all()):
            raise RuntimeError("the model's logits are not finite numbers")
        settings = [(row.request.temperature, row.request.top_p, row.uniform.random()) for row in rows]
        temperature_B, top_p_B, uniform_B = torch.tensor(settings, dtype=torch.float64, device=logits_BV.device).T
        ids_B, logprobs_B = draw(logits_BV, temperature_B.float(), top_p_B.float(), uniform_B)
        for row, token, logprob in zip(rows, ids_B.tolist(), logprobs_B.tolist(), strict=True):
            row.ids.append(token)
            row.logprobs.append(logprob)
            row.done += 1
        for at in reversed(range(len(rows))):
            self._finish(at)

    def _forward(self, first: int, ids: list[list[int]], positions: list[list[int]]) -> torch.Tensor:
        """One pass over rows from ``first`` on; the logits after the last token of each, ``[B, V]``."""
        device = next(self._model.parameters()).device
        positions_BT = torch.tensor(positions, device=device)
        mask_B1TS = self._cache.aim(first, positions_BT)
        # By position: transformers has renamed the fourth argument, the cache, within version 5.
        output = self._model(torch.tensor(ids, device=device), mask_B1TS, positions_BT, self._cache, logits_to_keep=1)
        logits_BTV: torch.Tensor = output.logits
        return logits_BTV[:, -1]

    def _finish(self, at: int) -> None:
        row = self._rows[at]
        stopped = row.ids[-1] in self._stop_ids
        drawn = tuple(row.ids[len(row.request.ids) :])
        if not stopped and len(drawn) < row.request.max_new:
            return
        if row.future.set_running_or_notify_cancel():
            row.future.set_result(Completion(drawn, tuple(row.logprobs), stopped, row.cached))
        self._leave(at)

    def _leave(self, at: int) -> None:
        """Keep a row's keys and values, and close the gap with the last row."""
        row = self._rows[at]
        self._park(_Parked(row.ids[: row.done], self._cache.read(at, row.done)))
        last = self._rows.pop()
        if last is not row:
            self._rows[at] = last
            self._cache.copy(len(self._rows), at, last.done)

    def _park(self, entry: _Parked) -> None:
        """Keep an entry, latest last; what it contains goes, and the oldest go until all fit."""
        kept = [other for other in self._parked if entry.ids[: other.done] != other.ids]
        kept.append(entry)
        total = sum(other.done for other in kept)
        while kept and total > self._kept_tokens:
            total -= kept.pop(0).done
        self._parked = kept


def _shared(a: list[int], b: list[int]) -> int:
    """Length of the common start."""
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _failure(why: str) -> EndpointError:
    return EndpointError(
        "The local model did not answer",
        why=f"{why[:1].upper()}{why[1:].strip().partition(chr(10))[0]}.",
        mend="If memory ran out, lower the batch size or the number of concurrent episodes.",
    )
