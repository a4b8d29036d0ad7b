"""``patchgym train --replay``: a step made again, and what a person is told of it."""

from pathlib import Path
from typing import TYPE_CHECKING

from patchgym.cli.console import say, show_json, show_line, show_table, stage
from patchgym.errors import UsageError
from patchgym.train import StepReport

if TYPE_CHECKING:
    from patchgym.train.replay import Difference, Replayed

_SHOWN = 12


def replay_step(path: Path, step: int, as_json: bool) -> int:
    """Make a step of the update at ``path`` again (a run with one update, or the update's folder); the exit code.

    Raises:
        UsageError: there is no such update, or no such step.
        DataError: what is kept of it is damaged, or its starting version is another one now.
    """
    folder = update_folder(path)
    from patchgym.train.replay import replay  # after what can be told without torch

    with stage(f"Replay step {step} of {folder.name}", step) as shown:

        def on_report(number: int, report: StepReport) -> None:
            shown.update(number, step, f"step {number} of {step}")

        found = replay(folder, step, on_report=on_report)
    for line in found.versions:
        say(f"  other than then: {line}")
    if as_json:
        show_json(found)
    else:
        _show(found)
    return 1 if found.verdict == "different" else 0


def update_folder(path: Path) -> Path:
    """The folder of an update: ``path`` itself, or that of the one update of the run there.

    Raises:
        UsageError: there is none, or there are several.
    """
    if (path / "update.json").is_file():
        return path
    found = sorted(one.parent for one in path.glob("updates/*/update.json"))
    if len(found) == 1:
        return found[0]
    names = ", ".join(str(one) for one in found)
    raise UsageError(
        f"{path} holds {len(found) or 'no'} updates" if found else f"There is no update at {path}",
        why=f"They are {names}." if found else "An update that can be made again has a folder RUN/updates/NAME.",
        mend="Name one of them." if found else "",
    )


def _show(found: "Replayed") -> None:
    rows = [(one.figure, _text(one.then), _text(one.now), _off(one)) for one in found.differences[:_SHOWN]]
    if rows:
        show_table("Figures that differ", ("figure", "then", "now", "off by"), rows)
    if len(found.differences) > _SHOWN:
        show_line(f"and {len(found.differences) - _SHOWN} more (--json has them all)")
    begun = f"step {found.from_step}'s state" if found.from_step else "the starting version"
    weights = "its weights bit by bit" if found.weights else "no weights, for none were written down"
    match found.verdict:
        case "exact":
            told = f"exact: every figure as it was, and {weights}"
        case "rounding":
            told = f"within rounding: the farthest figure is off by {found.largest or 0.0:.1e} of itself"
        case "different":
            told = "different" + (f"; the first parameter is {found.parameter}" if found.parameter else "")
    show_line(f"Step {found.step}, from {begun}: {told}.")


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.9g}"


def _off(one: "Difference") -> str:
    return "-" if one.relative is None else f"{one.relative:.1e}"
