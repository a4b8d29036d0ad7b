"""Formats of other projects, a module each: how a file of it is told, and how it is read."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from patchgym.records import Trajectory
from patchgym.traces.formats import (
    aider,
    article,
    atif,
    chat,
    claude_code,
    cline,
    codex,
    copilot,
    cursor,
    gemini_cli,
    inspect_ai,
    mini_swe_agent,
    opencode,
    openhands,
    swe_agent,
)
from patchgym.traces.intake import Intake

__all__ = ["READERS", "Reader"]


class Reader(Protocol):
    """What reads a format; a module of this package is one."""

    NAME: str
    """What the format is called on the command line."""
    ABOUT: str
    """What it is, in a line."""

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether a file, whose first kilobytes are ``head``, or a folder (``head`` is empty) is of this format. Files
        that bear another ending than usual are told by what they hold."""
        ...

    def read(self, path: Path, intake: Intake) -> Iterator[Trajectory]:
        """Every trajectory of a file or folder, one at a time. What cannot be read is counted by ``intake``.

        Raises:
            DataError: nothing of it can be read.
        """
        ...


_IN_ORDER: tuple[Reader, ...] = (
    *(inspect_ai, codex, gemini_cli, claude_code, mini_swe_agent, swe_agent, openhands),
    *(atif, article, cline, copilot, cursor, opencode, aider, chat),
)
READERS: Mapping[str, Reader] = {reader.NAME: reader for reader in _IN_ORDER}
"""Every format that can be read, by name, the most telling ones first: chat rows look like much else, and are last."""
