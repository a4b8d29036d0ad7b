"""Aider's chat history: Markdown in which ``#### `` begins a line of the user, ``> `` one of the tool, and the rest is
the model's. A heading ``# aider chat started at`` begins a session."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from patchgym.records import Message, Trajectory
from patchgym.traces.draft import Draft
from patchgym.traces.intake import Intake, moment

NAME = "aider"
ABOUT = "chat histories of Aider (.aider.chat.history.md)"
_STARTED = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*")
_MODEL = re.compile(r"> (?:Main model|Models?): (\S+)")
_VERSION = re.compile(r"> Aider v(\S+)")


def recognises(path: Path, head: bytes) -> bool:
    """See ``Reader.recognises``."""
    if head.lstrip().startswith((b"{", b"[")):
        return False
    return b"# aider chat started at" in head or (b"\n#### " in head and b"\n> " in head and path.suffix == ".md")


def read(path: Path, intake: Intake) -> Iterator[Trajectory]:
    """See ``Reader.read``. What stands before the first heading is a session of its own."""
    session = _Session(path, 1, None)
    number = 1
    with path.open("rb") as file:
        for raw in file:
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError:
                line = raw.decode("utf-8", "replace")
                intake.damaged("not_utf8", path.name)
            started = _STARTED.fullmatch(line.rstrip("\r\n"))
            if started:
                yield from session.ended()
                number += 1
                session = _Session(path, number, moment(started[1]))
            else:
                session.line(line.rstrip("\r\n"))
    yield from session.ended()


class _Session:
    """One session. Lines of one voice that follow each other are one message."""

    def __init__(self, path: Path, number: int, started_at: datetime | None) -> None:
        self._draft = Draft(id=f"{path.stem}-{number}", format=NAME, file=path.name, agent=NAME)
        self._started_at = started_at
        self._voice, self._said = "", list[str]()

    def line(self, line: str) -> None:
        if line.startswith("####") and not line.startswith("#####"):
            voice, text = "user", line[5:].removesuffix("  ")
        elif line.startswith(">"):
            voice, text = "tool", line[2:].removesuffix("  ")
            self._about(line)
        elif not line.strip() and self._voice != "model":
            return
        else:
            voice, text = "model", line
        if voice != self._voice:
            self._flush()
            self._voice = voice
        self._said.append(text)

    def ended(self) -> Iterator[Trajectory]:
        self._flush()
        if self._draft.steps:
            yield self._draft.finished(started_at=self._started_at)

    def _about(self, line: str) -> None:
        model, version = _MODEL.match(line), _VERSION.match(line)
        if model:
            self._draft.model = model[1]
        if version:
            self._draft.agent = f"{NAME} {version[1]}"

    def _flush(self) -> None:
        text = "\n".join(self._said).strip("\n")
        voice, self._voice, self._said = self._voice, "", []
        if not text:
            return
        if voice == "user":
            self._draft.given(Message(role="user", content=text))
        elif voice == "model":
            self._draft.answered(Message(role="assistant", content=text), [])
        elif voice == "tool":  # told to the user; what of it the model saw is not said
            self._draft.left_out["lines_of_the_tool"] += text.count("\n") + 1
