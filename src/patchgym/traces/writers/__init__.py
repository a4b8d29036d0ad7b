"""Formats that trajectories are written as, a module each."""

from collections.abc import Mapping

from patchgym.traces.writers import article, atif, chat, skyrl, trl, verifiers, verl
from patchgym.traces.writers.writer import Known, Reason, Row, Unwritable, Writer

__all__ = ["WRITERS", "Known", "Reason", "Row", "Unwritable", "Writer"]

WRITERS: Mapping[str, Writer] = {writer.NAME: writer for writer in (chat, atif, article, trl, verl, skyrl, verifiers)}
"""Every format that can be written, by name."""
