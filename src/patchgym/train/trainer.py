"""The one training loop. It reads from top to bottom: ``train`` is an update, ``take_step`` an optimizer step.

The optimizer is AdamW on the adapter's float32 weights. Its state is not carried from one update to the next: the
moments of another policy's gradients would be stale, and a first step is then about ``learning_rate`` for each weight
whatever the gradient's size.
"""

import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from patchgym.train.batch import make_batch
from patchgym.train.causes import diverged_gradient, diverged_loss, why_zero
from patchgym.train.checkpoint import publish_checkpoint
from patchgym.train.figures import step_figures
from patchgym.train.losses import Predictions
from patchgym.train.model import AdaptedModel
from patchgym.train.objectives import Objective, Say
from patchgym.train.packed import LossOf, PackedRows, backward, by_rows, predict
from patchgym.train.parallel import ALONE, Ranks, ranks_here
from patchgym.train.reasons import Reason
from patchgym.train.report import Mismatch, OnReport, OnStep, SamplerGap, StepReport, TrainSettings, UpdateReport
from patchgym.train.rows import RowSet, TokenRow
from patchgym.train.state import Reached, UpdateState


@dataclass(frozen=True)
class Ready:
    """Rows that a model can be trained on, and the rows of each step. ``left_out`` counts the others by reason,
    ``refused`` are those that the objective found wrong."""

    plan: list[list[TokenRow]]
    left_out: Counter[Reason]
    refused: Mapping[TokenRow, Mismatch]


def make_ready(rows: RowSet, model: AdaptedModel, objective: Objective, settings: TrainSettings) -> Ready:
    """What is done before the first step. The model must hold the weights that the update starts from."""
    kept, left_out = _fitting(rows, model)
    refused = objective.prepare(kept, _says(model, settings.micro_batch_tokens))
    left_out.update(mismatch.reason for mismatch in refused.values())
    return Ready(schedule([row for row in kept if row not in refused], settings), left_out, refused)


def make_optimizer(model: AdaptedModel, settings: TrainSettings) -> torch.optim.Optimizer:
    """The optimizer of one update."""
    return torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, foreach=True
    )


def train(
    rows: RowSet,
    model: AdaptedModel,
    objective: Objective,
    settings: TrainSettings,
    *,
    out: Path,
    trained_on: Mapping[str, Sequence[str]],
    on_step: OnStep | None = None,
    on_report: OnReport | None = None,
    state: UpdateState | None = None,
) -> UpdateReport:
    """Make one update and publish it under ``out``. Where no gradient was there, nothing moves or is published.
    ``trained_on`` goes on record with it. With a ``state`` every step is written down, and an update that was begun
    there goes on from its last one; one that is done is not made again.

    Raises:
        DivergenceError: a loss or a gradient is not finite; nothing is published.
        StorageError: a state or the checkpoint could not be written; earlier ones stay.
    """
    known = state.done() if state else None
    if known is not None and (known.version is None or (out / known.version).is_dir()):
        return known
    ranks = ranks_here()
    ready = make_ready(rows, model, objective, settings)
    plan, optimizer = ready.plan, make_optimizer(model, settings)
    reached = state.resume(model, optimizer) if state else Reached([], 0.0)
    steps, gap = reached.reports, reached.lines[0].gap if reached.lines else None
    done = sum(step.trained_tokens for step in steps)
    shown = on_step if ranks.first else None
    progress = _Progress(sum(map(_trained, plan)), settings.seconds, shown, done, reached.seconds)
    stopped = ""
    for number, step_rows in enumerate(plan[len(steps) :], start=len(steps) + 1):
        if not ranks.once(partial(progress.has_time_for, _trained(step_rows))):
            stopped = f"the limit of {settings.seconds:g} s came after {len(steps)} of {len(plan)} steps"
            break
        report, step_gap = take_step(step_rows, model, objective, optimizer, settings, progress.advance, ranks)
        steps.append(report)
        gap = gap or (step_gap if objective.algorithm != "sft" else None)
        progress.figures = {"step": float(number), "loss": report.loss, "gradient_norm": report.gradient_norm}
        if state:
            state.keep(number, len(plan), report, gap if number == 1 else None, model, optimizer)
        if on_report:
            on_report(number, report)
    moved = any(step.gradient_norm > 0 for step in steps)
    summary = {"loss": steps[-1].loss, "gradient_norm": steps[-1].gradient_norm} if steps else {}
    info = None
    if moved:
        publish = partial(publish_checkpoint, model, out, algorithm=objective.algorithm, trained_on=trained_on)
        info = ranks.once(partial(publish, metrics=summary))
    update = UpdateReport(
        algorithm=objective.algorithm,
        parent=model.version,
        version=info.version if info else None,
        gradient="nonzero" if moved else "zero",
        why="" if moved else why_zero(rows, ready.left_out, steps, settings),
        stopped_early=stopped,
        rows_used=len({id(row) for step in plan[: len(steps)] for row in step}),
        left_out={reason.value: count for reason, count in sorted(ready.left_out.items())},
        mismatches=(*rows.mismatches, *ready.refused.values()),
        groups=rows.groups,
        zero_variance_groups=rows.zero_variance_groups,
        flat_groups=rows.flat_groups,
        trained_tokens=sum(step.trained_tokens for step in steps),
        total_tokens=sum(step.total_tokens for step in steps),
        trainable_parameters=sum(parameter.numel() for parameter in model.parameters()),
        steps=tuple(steps),
        sampler_gap=gap,
        seconds=progress.elapsed,
    )
    if state:
        state.finish(update)
    return update


def take_step(
    rows: Sequence[TokenRow],
    model: AdaptedModel,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    settings: TrainSettings,
    advance: Callable[[int], None] = lambda tokens: None,
    ranks: Ranks = ALONE,
) -> tuple[StepReport, SamplerGap]:
    """One optimizer step: gradients of all chunks of all processes add up, then the weights move once. ``advance`` is
    told how many trained ids are through.

    Raises:
        DivergenceError: the loss or the gradient is not finite; the weights did not move.
    """
    began, mine = time.monotonic(), ranks.share(rows)
    packed = PackedRows(mine, settings.micro_batch_tokens, split=settings.recompute, device=model.device)
    batch, divisor = make_batch(mine, model.device), objective.normaliser(rows)
    seen: defaultdict[str, list[Tensor]] = defaultdict(list)

    def loss_of(numbers_M: Tensor, predictions: Predictions) -> Tensor:
        part = batch.take(numbers_M)
        losses_M, figures = objective.token_losses(part, predictions)
        loss = losses_M.sum() / divisor
        if not math.isfinite(loss.item()):
            raise diverged_loss(loss.item(), part, predictions.logprobs_N, losses_M, model)
        for name, values_M in {**figures, "sampler": part.sampler_N, "turn": part.turns_N}.items():
            seen[name].append(values_M)
        advance(len(numbers_M))
        return loss

    total: float | None = None
    summand: LossOf = loss_of
    if objective.whole_rows and len(packed.chunks) > 1:
        total, summand = by_rows(loss_of, predict(model, packed))
    added = backward(model, packed, summand, entropy_gradient=objective.entropy_gradient, recompute=settings.recompute)
    total = ranks.total(added if total is None else total)
    ranks.sum_gradients(model.parameters())
    norm = _move(rows, model, objective, optimizer, settings.grad_clip)
    joined = ranks.joined(seen)
    if len(mine) < len(rows):
        advance(_trained(rows) - _trained(mine))  # what the other processes did
    report = StepReport(
        rows=len(rows),
        total_tokens=sum(len(row.ids) for row in rows),
        read_tokens=int(ranks.total(packed.read)),
        loss=total,
        gradient_norm=norm,
        **step_figures(joined),
        seconds=time.monotonic() - began,
    )
    return report, _sampler_gap(joined["logprob"] - joined["sampler"], joined["turn"])


def _move(
    rows: Sequence[TokenRow],
    model: AdaptedModel,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    grad_clip: float,
) -> float:
    """Move the weights by their gradients, once; the norm of those before it was clipped."""
    weights = model.parameters()
    total_norm = torch.nn.utils.get_total_norm(part.grad for part in weights if part.grad is not None)
    norm = total_norm.item()
    if not math.isfinite(norm):
        raise diverged_gradient(norm, rows, model, _alone(model, objective))
    torch.nn.utils.clip_grads_with_norm_(weights, grad_clip, total_norm)
    if norm > 0:  # without a gradient AdamW would still move weights by momentum and decay
        optimizer.step()
        model.moved()
    optimizer.zero_grad()
    return norm


def _alone(model: AdaptedModel, objective: Objective) -> Callable[[TokenRow], None]:
    """The gradient of a single row, to find the one that is to blame."""

    def gradient_of(row: TokenRow) -> None:
        batch, divisor = make_batch([row], model.device), objective.normaliser([row])

        def loss_of(numbers_M: Tensor, predictions: Predictions) -> Tensor:
            return objective.token_losses(batch.take(numbers_M), predictions)[0].sum() / divisor

        packed = PackedRows([row], len(row.ids), device=model.device)
        backward(model, packed, loss_of, entropy_gradient=objective.entropy_gradient)

    return gradient_of


def _says(model: AdaptedModel, chunk_ids: int) -> Say:
    def say(rows: Sequence[TokenRow], of: Literal["start", "base"]) -> Predictions:
        packed = PackedRows(rows, chunk_ids, device=model.device)
        with model.reference() if of == "base" else nullcontext(model) as asked:
            return predict(asked, packed)

    return say


def schedule(rows: Sequence[TokenRow], settings: TrainSettings) -> list[list[TokenRow]]:
    """The rows of each step. Every pass takes all rows once, in an order of its own drawn from the seed; a group's rows
    stay together, because they share a prompt."""
    draw = random.Random(settings.seed)
    groups: defaultdict[str, list[TokenRow]] = defaultdict(list)
    for row in rows:
        groups[row.group_id].append(row)
    steps: list[list[TokenRow]] = []
    for _ in range(settings.passes):
        order = [row for group in draw.sample(list(groups.values()), len(groups)) for row in group]
        steps += [order[at : at + settings.rows_per_step] for at in range(0, len(order), settings.rows_per_step)]
    return steps


@dataclass
class _Progress:
    """How far an update is, and whether there is time for more. ``before`` is the time that earlier tries took."""

    total: int
    seconds: float | None
    on_step: OnStep | None
    done: int
    before: float
    figures: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        return self.before + time.monotonic() - self.began

    def advance(self, tokens: int) -> None:
        self.done += tokens
        if self.on_step:
            self.on_step(self.done, self.total, self.figures)

    def has_time_for(self, tokens: int) -> bool:
        """Whether ``tokens`` more end in time at the speed so far. There is always time for the first step."""
        return self.seconds is None or self.done == 0 or self.elapsed * (1 + tokens / self.done) <= self.seconds


def _fitting(rows: RowSet, model: AdaptedModel) -> tuple[list[TokenRow], Counter[Reason]]:
    """The rows that this model can read, and all reasons why others are not among them."""
    kept, left_out = [], rows.left_out.copy()
    for row in rows.rows:
        if len(row.ids) > model.max_context:
            left_out[Reason.TOO_LONG] += 1
        elif not row.trained:
            left_out[Reason.NOTHING_TRAINABLE] += 1
        elif not 0 <= min(row.ids) <= max(row.ids) < model.vocabulary:
            left_out[Reason.UNKNOWN_IDS] += 1
        else:
            kept.append(row)
    return kept, left_out


def _trained(rows: Sequence[TokenRow]) -> int:
    return sum(row.trained for row in rows)


def _sampler_gap(difference_N: Tensor, turns_N: Tensor) -> SamplerGap:
    gap_N = difference_N.abs()
    by_turn = {turn: gap_N[turns_N == turn].mean().item() for turn in sorted(set(turns_N.tolist()))}
    return SamplerGap(mean=gap_N.mean().item(), largest=gap_N.max().item(), by_turn=by_turn)
