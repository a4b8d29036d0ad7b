"""What a person sees: progress on standard error, tables on standard output, JSON for programs."""

import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, Protocol

from pydantic import BaseModel, JsonValue
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

_PLAIN_EVERY_S = 10.0
_FIGURE = re.compile(r"[-+\d.,/%e ]*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

_err = Console(stderr=True, highlight=False, soft_wrap=True)


class Stage(Protocol):
    """One piece of long work, as it is shown."""

    def update(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how much is done and, in a few words, how it goes."""
        ...


def say(text: str) -> None:
    """A line for the person watching, on standard error. Text is never markup."""
    _err.print(Text(visible(text)))


def visible(text: str) -> str:
    """Text in which what would move the cursor, change colours or turn the line around is written out."""
    return _CONTROL.sub(_written_out, text.replace("\r\n", "\n"))


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


@contextmanager
def stage(title: str, total: float | None = None) -> Iterator[Stage]:
    """Show a piece of work while it goes on: a live bar on a terminal, a line now and then elsewhere."""
    started = time.monotonic()
    if _err.is_terminal:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", markup=False),
        )
        with Progress(*columns, console=_err, transient=True) as progress:
            shown: _Live | _Plain = _Live(progress, title, total)
            yield shown
    else:
        shown = _Plain(title)
        yield shown
    note = f": {shown.note}" if shown.note else ""
    say(f"  {title}, {time.monotonic() - started:.0f} s{note}")


class _Live:
    def __init__(self, progress: Progress, title: str, total: float | None) -> None:
        self.note = ""
        self._progress = progress
        self._task = progress.add_task(title, total=total, note="")

    def update(self, done: float, total: float | None = None, note: str = "") -> None:
        self.note = note or self.note
        self._progress.update(self._task, completed=done, note=self.note)
        if total is not None:
            self._progress.update(self._task, total=total)


class _Plain:
    def __init__(self, title: str) -> None:
        self.note = ""
        self._title = title
        self._last = time.monotonic()

    def update(self, done: float, total: float | None = None, note: str = "") -> None:
        self.note = note or self.note
        now = time.monotonic()
        if now - self._last >= _PLAIN_EVERY_S:
            self._last = now
            of = f"/{total:.0f}" if total is not None else ""
            say(f"  {self._title}: {done:.0f}{of} {self.note}".rstrip())


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on standard output, at most as wide as the terminal. Cells are never markup; figures align right."""
    console = Console(highlight=False)
    table = Table(title=visible(title), title_justify="left", title_style="bold", header_style="")
    for position, column in enumerate(columns):
        figures = all(_FIGURE.fullmatch(row[position]) for row in rows)
        justify: Literal["left", "right"] = "right" if figures and rows else "left"
        longest = max((len(row[position]) for row in rows), default=0)
        whole = justify == "right" or (position == 0 and longest <= console.width // 2)
        table.add_column(column, justify=justify, overflow="fold", no_wrap=whole)
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    console.print(table)


def show_line(text: str = "") -> None:
    """A line on standard output. Text is never markup."""
    Console(highlight=False, soft_wrap=True).print(Text(visible(text)))


def show_json(value: BaseModel | JsonValue) -> None:
    """One JSON document on standard output."""
    data = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    json.dump(data, sys.stdout, indent=1, allow_nan=False)
    sys.stdout.write("\n")


def number(value: float | None, digits: int = 2) -> str:
    """A number for a table; a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}f}"
