"""An update while a person watches, and what it came to in words and as a table."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from patchgym.cli.console import number, show_line, show_table, stage
from patchgym.train import OnStep, StepReport, UpdateReport

_MOST_STEPS = 20
_NAMED = 5


@contextmanager
def watched_update(title: str) -> Iterator[OnStep]:
    """Show an update while it is made: trained tokens, their number a second since this process began with it, and the
    time that is left at that speed."""
    began = time.monotonic()
    first: list[int] = []
    with stage(title) as shown:

        def on_step(done: int, total: int, metrics: dict[str, float]) -> None:
            if not first:  # what is done before this process is no part of its speed
                first.append(done)
            rate = (done - first[0]) / max(time.monotonic() - began, 1e-9)
            left = f", {rate:.0f}/s, {_clock((total - done) / rate)} left" if rate > 0 else ""
            loss = f", loss {metrics['loss']:.3f}" if "loss" in metrics else ""
            shown.update(done, total, f"{done} of {total} trained tokens{left}{loss}")

        yield on_step


def describe(report: UpdateReport) -> str:
    """An update in one line: what moved, or why nothing did."""
    if report.gradient == "zero":
        return f"The gradient is zero: {report.why}"
    norms = [step.gradient_norm for step in report.steps]
    early = f"; {report.stopped_early}" if report.stopped_early else ""
    return (
        f"The gradient is not zero (norm {number(norms[0], 3)} to {number(norms[-1], 3)}): {report.rows_used} rows, "
        f"{report.trained_tokens} trained tokens, {len(report.steps)} steps, now {report.version}{early}"
    )


def show_update(report: UpdateReport) -> None:
    """The steps as a table (of many, some), what was left out and why, and the verdict."""
    columns = ("step", "rows", "tokens", "loss", "norm", "entropy", "KL", "clipped", "ratio 1%", "99%", "gap", "tok/s")
    numbered = list(enumerate(report.steps, start=1))
    stride = -(-len(numbered) // _MOST_STEPS) or 1
    chosen = [one for one in numbered if one[0] % stride == 1 % stride or one[0] == len(numbered)]
    if chosen:
        show_table("\nSteps", columns, [_cells(at, step) for at, step in chosen])
    rate = report.trained_tokens / report.seconds if report.seconds else None
    show_line(
        f"{report.rows_used} rows, {report.trained_tokens} trained tokens of {report.total_tokens}, "
        f"{number(rate, 0)} trained tokens/s; {report.trainable_parameters} weights can move."
    )
    if report.groups:
        show_line(f"{report.groups} groups, {report.zero_variance_groups} without variance.")
    if report.left_out:
        show_line(f"Left out: {_counted(report.left_out)}.")
    for one in report.mismatches[:_NAMED]:
        turn = f", turn {one.turn}" if one.turn is not None else ""
        show_line(f"  {one.trajectory}{turn}: {one.why}")
    if len(report.mismatches) > _NAMED:
        show_line(f"  and {len(report.mismatches) - _NAMED} more (--json has them all)")
    show_line(f"\n{describe(report)}.")


def _counted(left_out: dict[str, int]) -> str:
    from patchgym.train import Reason

    pairs = sorted(left_out.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{count} x {name} ({Reason(name).meaning})" for name, count in pairs)


def _cells(at: int, step: StepReport) -> Sequence[str]:
    low, high = (step.ratio_quantiles[0], step.ratio_quantiles[2]) if step.ratio_quantiles else (None, None)
    return (
        str(at),
        str(step.rows),
        str(step.trained_tokens),
        number(step.loss, 4),
        number(step.gradient_norm, 3),
        number(step.entropy),
        number(step.kl, 4),
        number(step.clip_share),
        number(low, 3),
        number(high, 3),
        number(step.sampler_gap, 4),
        number(step.trained_tokens / step.seconds if step.seconds else None, 0),
    )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
