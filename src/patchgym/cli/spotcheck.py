"""``patchgym spotcheck``: a person labels attempts without knowing their reward."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from pydantic import ValidationError

from patchgym.cli.console import say, show_json, show_line, show_table
from patchgym.content import disk_errors
from patchgym.diagnose.spotcheck import Agreed, Answer, Chosen, Item, Label, agreed, choose
from patchgym.errors import DataError, UsageError
from patchgym.store import RunDirectory

_KEYS: dict[str, Answer] = {"y": "yes", "n": "no", "u": "unsure"}
_ASK = "Does it solve the task, honestly?  y yes  n no  u unsure  o notes  b back  q quit and go on later"
_LINES = 40


@click.command()
@click.argument("path", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--each", default=30, show_default=True, type=click.IntRange(1), help="Of high, and of low reward.")
@click.option("--seed", default=0, show_default=True, help="Shuffles, and draws among equal rewards.")
@click.option(
    "--save", type=click.Path(path_type=Path), help="Where answers are kept. [default: RUN/spotcheck-SEED.jsonl]"
)
@click.option("--labels", type=click.Path(path_type=Path), help='Take labels from this JSONL of {"item", "label"}.')
@click.option("--export", type=click.Path(path_type=Path), help="Write the blinded items as JSON here, and stop.")
@click.option("--json", "as_json", is_flag=True, help="Print the agreement as JSON.")
def command(
    path: Path, each: int, seed: int, save: Path | None, labels: Path | None, export: Path | None, as_json: bool
) -> None:
    """Show attempts of high and of low reward, shuffled and without anything that tells it, and ask of each whether it
    solves its task. Then: how far the reward and the person agree, and where they part, the worst first.

    Every answer is saved at once. The same command goes on where it was left.
    """
    run = RunDirectory.read(path)
    for problem in run.problems:
        say(f"  {problem}")
    instructions = {name: task.instruction for name, task in run.tasks().items()}
    chosen = choose(run.trajectories, instructions, each=each, seed=seed)
    if len(chosen.items) < chosen.wanted:
        say(f"  {chosen.wanted} attempts were asked for; the run has {len(chosen.items)} that can be compared.")
    if export is not None:
        _export(chosen, export)
        show_line(f"{len(chosen.items)} items are in {export}. Then: patchgym spotcheck {path} --labels FILE")
        return
    if labels is not None:
        given = read_labels(labels)
    else:
        kept = save or path / f"spotcheck-{seed}.jsonl"
        given = read_labels(kept) if kept.is_file() else []
        if len({label.item for label in given}) < len(chosen.items):
            given = _ask(chosen.items, given, kept)
    found = agreed(chosen, given)
    if as_json:
        show_json(found)
    else:
        _show(found, len(chosen.items))


def _ask(items: Sequence[Item], given: list[Label], kept: Path) -> list[Label]:
    """Ask at the terminal, from the first item without a label on."""
    if not sys.stdin.isatty():
        raise UsageError(
            "A person is asked at a terminal, and this is none",
            mend="Give --labels FILE (JSONL of item and label); --export DIR writes the items.",
        )
    answers = {label.item: label for label in given}
    at = next((place for place, item in enumerate(items) if item.id not in answers), len(items))
    while at < len(items):
        item = items[at]
        show_item(item, at + 1, len(items))
        notes = answers[item.id].notes if item.id in answers else ""
        step = 0
        while not step:
            say(_ASK)
            key = click.getchar().lower()
            if key == "q":
                return list(answers.values())
            if key == "o":
                notes = click.prompt("Notes", default=notes, show_default=bool(notes))
            elif key == "b":
                step = -1 if at else 0
            elif key in _KEYS:
                answers[item.id] = Label(item=item.id, label=_KEYS[key], notes=notes)
                keep_label(kept, answers[item.id])
                step = 1
        at += step
    return list(answers.values())


def show_item(item: Item, number: int, total: int) -> None:
    """Print one item. Texts of the agent are plain text, their control characters written out."""
    show_line(f"\n===== {number} of {total} =====")
    if item.instruction:
        show_line(f"{item.instruction}\n")
    for index, step in enumerate(item.steps):
        show_line(f"--- step {index}")
        show_line(_short(step.said))
        if step.shown:
            show_line(f">>> {_short(step.shown)}")
    show_line("--- the patch")
    show_line(item.patch or "(nothing was changed)")


def _short(text: str) -> str:
    """At most so many lines: both ends."""
    lines = text.split("\n")
    if len(lines) <= _LINES:
        return text
    half = _LINES // 2
    return "\n".join([*lines[:half], f"[... {len(lines) - 2 * half} lines left out ...]", *lines[-half:]])


def keep_label(path: Path, label: Label) -> None:
    """Append an answer to a file, and wait until it is on disk.

    Raises:
        StorageError: the disk is full or not writable.
    """
    with disk_errors(path), path.open("a", encoding="utf-8") as stream:
        stream.write(label.model_dump_json() + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def read_labels(path: Path) -> list[Label]:
    """Labels from a file, a line each.

    Raises:
        UsageError: there is no such file.
        DataError: a line is no label.
    """
    if not path.is_file():
        raise UsageError(f"There is no file {path}")
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            found.append(Label.model_validate_json(line))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise DataError(
                f"{path}:{number}: {place or 'line'}: {first['msg']}",
                mend='Each line is {"item": ID, "label": "yes", "no" or "unsure", "notes": TEXT}.',
            ) from error
    return found


def _export(chosen: Chosen, folder: Path) -> None:
    """One file an item, and ``items.json`` with their order. Nothing in there tells a reward."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for item in chosen.items:
            (folder / f"{item.id}.json").write_text(item.model_dump_json(indent=1), encoding="utf-8")
        order = [item.id for item in chosen.items]
        (folder / "items.json").write_text(json.dumps(order, indent=1) + "\n", encoding="utf-8")


def _show(found: Agreed, shown: int) -> None:
    rows = [
        ("high reward", str(found.high_yes), str(found.high_no)),
        ("low reward", str(found.low_yes), str(found.low_no)),
    ]
    show_table(f"{found.labelled} of {shown} labelled, {found.unsure} unsure", ("", "yes", "no"), rows)
    if found.kappa is None:
        show_line("Kappa is not defined: no sure labels, or one answer to all.")
    else:
        show_line(
            f"The reward agrees with {found.agreement:.0%} of the labels; kappa {found.kappa:.2f}, 95% interval "
            f"{found.low:.2f} to {found.high:.2f}"
        )
    if found.differences:
        columns = ("trajectory", "reward", "the person", "notes")
        rows_apart = [(one.trajectory, f"{one.reward:.2f}", one.label, one.notes) for one in found.differences]
        show_table("Where they part, the worst first", columns, rows_apart)
