"""Figures of steps to TensorBoard, trackio or wandb, beside the JSON lines that are always written.

Each is imported when it is asked for. Nothing leaves this machine: wandb runs offline and trackio keeps its own
database here, unless ``$WANDB_MODE`` or ``$TRACKIO_SPACE_ID`` say otherwise.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from patchgym.errors import PrerequisiteError
from patchgym.train import OnReport, StepReport

LOGGERS = ("tensorboard", "trackio", "wandb")

Log = Callable[[int, Mapping[str, float]], None]
"""Takes the figures of a step."""


def check_loggers(names: Sequence[str]) -> None:
    """Whether what is asked for is installed; quick.

    Raises:
        PrerequisiteError: one is not.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise PrerequisiteError(
                f"{name} is not installed", mend=f"Run: pip install 'patchgym[{name}]', or leave out --log {name}."
            )


@contextmanager
def logging_to(names: Sequence[str], folder: Path, run: str, config: Mapping[str, JsonValue]) -> Iterator[OnReport]:
    """What hands every step to the loggers of these names; their files lie in ``folder``, but for trackio's."""
    with redirect_stdout(sys.stderr):  # some greet on standard output, where results go
        opened = [_OPEN[name](folder, run, config) for name in dict.fromkeys(names)]

    def on_report(step: int, report: StepReport) -> None:
        for log, _ in opened:
            log(step, figures(report))

    try:
        yield on_report
    finally:
        with redirect_stdout(sys.stderr):
            for _, close in opened:
                close()


def figures(report: StepReport) -> dict[str, float]:
    """The figures of a step that were measured, quantiles by their names."""
    found = {name: value for name, value in report if isinstance(value, int | float)}
    if report.ratio_quantiles is not None:
        found |= dict(zip(("ratio_q01", "ratio_q50", "ratio_q99"), report.ratio_quantiles, strict=True))
    return found


def _tensorboard(folder: Path, run: str, config: Mapping[str, JsonValue]) -> tuple[Log, Callable[[], None]]:
    writer: Any = importlib.import_module("torch.utils.tensorboard").SummaryWriter(str(folder / "tensorboard" / run))

    def log(step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(f"train/{name}", value, step)

    return log, writer.close


def _trackio(folder: Path, run: str, config: Mapping[str, JsonValue]) -> tuple[Log, Callable[[], None]]:
    trackio: Any = importlib.import_module("trackio")
    trackio.init(project="patchgym", name=run, config=dict(config), embed=False)
    return lambda step, values: trackio.log(dict(values), step=step), trackio.finish


def _wandb(folder: Path, run: str, config: Mapping[str, JsonValue]) -> tuple[Log, Callable[[], None]]:
    wandb: Any = importlib.import_module("wandb")
    mode = os.environ.get("WANDB_MODE", "offline")
    made = wandb.init(project="patchgym", name=run, dir=str(folder), config=dict(config), mode=mode)
    return lambda step, values: made.log(dict(values), step=step), made.finish


_OPEN = {"tensorboard": _tensorboard, "trackio": _trackio, "wandb": _wandb}
