"""A step of an update made again, and how far what comes out is what came out then.

On the machine that made it, with the same libraries, a step gives the same bits: it runs with as many threads as then.
Elsewhere sums run in another order: then its figures agree within rounding.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from patchgym.errors import DataError, UsageError
from patchgym.records import Record
from patchgym.train.loading import load_adapted
from patchgym.train.model import AdaptedModel
from patchgym.train.objectives import Imitation, Objective, PolicyGradient
from patchgym.train.report import OnReport, PolicyGradientSettings, SftSettings, StepReport, TrainSettings
from patchgym.train.state import (
    StepLine,
    UpdateIdentity,
    differing_versions,
    read_identity,
    read_steps,
    read_update_rows,
    restore,
    threads_of,
    weight_figures,
)
from patchgym.train.trainer import make_optimizer, make_ready, take_step

ROUNDING = 1e-3
_NOTHING = 1e-6
_UNCOMPARED = {"seconds"}


class Difference(Record):
    """A figure that came out otherwise. ``relative`` is the difference by the larger of the two; None where one of them
    is no number."""

    figure: str
    then: float | int | None
    now: float | int | None
    relative: float | None


class Replayed(Record):
    """A step that was made again, from the state after step ``from_step`` (0: the version that the update started
    from). ``exact``: every figure and every bit of the weights is as it was. ``rounding``: no figure, and no
    parameter's norm, is off by more than ``ROUNDING`` of itself; ``largest`` says how far the farthest is (None: one of
    them is no number). ``parameter`` is the first one whose values differ, None where none does or where nobody wrote
    them down; ``weights`` says whether they were. ``versions`` names what else is here than was there."""

    step: int
    from_step: int
    verdict: Literal["exact", "rounding", "different"]
    largest: float | None
    differences: tuple[Difference, ...]
    parameter: str | None
    weights: bool
    versions: tuple[str, ...]
    report: StepReport


def replay(path: Path, step: int, *, cache: Path | None = None, on_report: OnReport | None = None) -> Replayed:
    """Make step ``step`` of the update at ``path`` again, and compare. Steps before it are made again too, as far as no
    state of them is kept. Nothing is written.

    Raises:
        UsageError: the update has no such step, or its starting version is not there any more.
        DataError: its folder is damaged, or what is there now is another version.
        DivergenceError: a loss or a gradient is not finite.
    """
    identity, lines = read_identity(path), read_steps(path)
    if not 1 <= step <= len(lines):
        raise UsageError(
            f"The update at {path} has no step {step}",
            why=f"It has {len(lines)}.",
            mend=f"Name one from 1 to {len(lines)}." if lines else "",
        )
    with threads_of(identity):
        settings, objective = _objective(identity)
        model = load_adapted(_start(path, identity), settings, cache)
        if model.version != identity.parent or tuple(model.trainable()) != identity.parameters:
            raise DataError(
                f"The update at {path} started from {identity.parent}",
                why=f"{identity.start} is {model.version} now.",
                mend="Put that version there again.",
            )
        plan = make_ready(read_update_rows(path), model, objective, settings).plan
        optimizer = make_optimizer(model, settings)
        begin = restore(path, step - 1, model, optimizer)
        for number in range(begin + 1, step + 1):
            report, _ = take_step(plan[number - 1], model, objective, optimizer, settings)
            if on_report:
                on_report(number, report)
        return _compared(lines[step - 1], report, model, begin, differing_versions(identity.versions))


def _objective(identity: UpdateIdentity) -> tuple[TrainSettings, Objective]:
    if identity.algorithm == "sft":
        return SftSettings.model_validate(identity.settings), Imitation()
    settings = PolicyGradientSettings.model_validate(identity.settings)
    return settings, PolicyGradient(settings)


def _start(path: Path, identity: UpdateIdentity) -> str:
    """Where the starting version is: where it was, or in the run that the update lies in, which may have moved."""
    moved = path.resolve().parent.parent / "checkpoints" / identity.parent
    return str(moved) if moved.is_dir() else identity.start


def _compared(line: StepLine, report: StepReport, model: AdaptedModel, begin: int, versions: Sequence[str]) -> Replayed:
    names = list(model.trainable())
    now = weight_figures(model) if line.weights is not None else ()
    then = line.weights or ()
    differing = [name for name, old, new in zip(names, then, now, strict=True) if old[0] != new[0]] if then else []
    norms = [(name, old[1], new[1]) for name, old, new in zip(names, then, now, strict=True)] if then else []
    found = [
        *_differences(_figures(line.report), _figures(report)),
        *_differences({f"norm of {n}": old for n, old, _ in norms}, {f"norm of {n}": new for n, _, new in norms}),
    ]
    off = [one.relative for one in found]
    largest = None if None in off else max((one for one in off if one is not None), default=0.0)
    exact = not found and not differing
    return Replayed(
        step=line.step,
        from_step=begin,
        verdict="exact" if exact else "different" if largest is None or largest > ROUNDING else "rounding",
        largest=largest,
        differences=tuple(found),
        parameter=differing[0] if differing else None,
        weights=bool(then),
        versions=tuple(versions),
        report=report,
    )


def _figures(report: StepReport) -> dict[str, float | int | None]:
    """The numbers of a report by name, quantiles one by one."""
    return dict(_flat(report.model_dump(mode="json", exclude=_UNCOMPARED)))


def _flat(values: Mapping[str, object]) -> Iterator[tuple[str, float | int | None]]:
    for name, value in values.items():
        if isinstance(value, list):
            yield from _flat({f"{name}[{at}]": one for at, one in enumerate(value)})
        elif value is None or isinstance(value, int | float):
            yield name, value


def _differences(then: Mapping[str, float | int | None], now: Mapping[str, float | int | None]) -> Iterator[Difference]:
    for name in dict.fromkeys([*then, *now]):
        old, new = then.get(name), now.get(name)
        if old != new:
            yield Difference(figure=name, then=old, now=new, relative=_relative(old, new))


def _relative(old: float | int | None, new: float | int | None) -> float | None:
    """How far apart two numbers are. What is smaller than a millionth counts as nothing: a loss that cancels out to 0,
    say, has no digits to compare."""
    if old is None or new is None:
        return None
    off = abs(old - new)
    return off / max(abs(old), abs(new)) if off > _NOTHING else 0.0
