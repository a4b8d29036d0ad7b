"""What is searched for, and how a text is searched.

A text is compared line by line without indentation and blank lines, so that neither re-indenting nor trailing space
hides anything. What is searched for is a block of such lines: a hunk of the fix with some context on each side, or a
whole hidden test.
"""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple


class Block(NamedTuple):
    """Lines to find. ``name`` is what they belong to: a path for the fix, a test's name for a hidden test."""

    name: str
    text: str


class Secrets:
    """The solution and the hidden tests, as they came through standard input."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.workspace: str = data["workspace"]
        self.skip: list[str] = data["skip"]
        self.environment: str = data["environment"]
        self.package: str = data["package"]
        self.seconds: float = data["seconds"]
        self.most_bytes: int = data["bytes"]
        self.fix = [Block(name, text) for name, text in data["fix"]]
        self.tests = [Block(name, text) for name, text in data["tests"]]
        self.test_files: list[str] = data["test_files"]
        self.names: list[str] = data["names"]
        self.sources: dict[str, list[str]] = data["sources"]
        self.commits: list[str] = data["commits"]
        self.index: list[str] = data["index"]
        self.ports: list[int] = data["ports"]


def normal(text: str) -> str:
    """The lines of a text without white space around them, blank ones left out."""
    return "\n".join(line for line in (line.strip() for line in text.split("\n")) if line)


def unpatched(text: str) -> str:
    """The new side of a patch in ``text``: its lines without their marks, removed ones left out."""
    return "\n".join(line[1:] for line in text.split("\n") if line[:1] in ("+", " "))


class Report:
    """Findings, one JSON object a line, written as they are found."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._seen: dict[str, int] = {}

    def add(self, kind: str, path: str, evidence: str) -> None:
        """Write a finding: one a kind and path, and of one kind at most five in a file or repository, forty in all."""
        for key, most in ((kind + "\0" + path, 1), (kind + "\0" + path.partition("!")[0] + "\0", 5), (kind, 40)):
            self._seen[key] = self._seen.get(key, 0) + 1
            if self._seen[key] > most:
                return
        self._write({"kind": kind, "path": path[:1000], "evidence": evidence[:1000]})

    def done(self, **figures: object) -> None:
        """Write the last line."""
        self._write({"done": figures})

    def _write(self, record: dict[str, Any]) -> None:
        line = json.dumps(record).encode() + b"\n"
        while line:
            line = line[os.write(self._descriptor, line) :]


class Search:
    """Looks for the secrets in texts, within a budget of bytes."""

    def __init__(self, secrets: Secrets, report: Report) -> None:
        self.secrets = secrets
        self.report = report
        self.bytes = 0

    def look(self, data: bytes, place: str, kind: str | None = None) -> bool:
        """Report what ``data`` gives away; whether it does. ``kind`` names the finding where the place says more than
        that a file is readable."""
        self.bytes += len(data)
        if b"\0" in data[:4096]:
            return False
        text = data.decode("utf-8", "replace")
        plain = normal(text)
        found = self._find(plain, place, kind)
        if not found and ("\n@@ " in text or text.startswith("@@ ")):
            found = self._find(normal(unpatched(text)), place, kind)
        return found

    def _find(self, plain: str, place: str, kind: str | None) -> bool:
        padded = "\n" + plain + "\n"
        fix = [block for block in self.secrets.fix if "\n" + block.text + "\n" in padded]
        if fix:
            told = f"{len(fix)} of {len(self.secrets.fix)} hunks of the fix"
            self.report.add(kind or "fixed_source", place, told + ", e.g. " + fix[0].text.replace("\n", " / ")[:160])
        tests = [block for block in self.secrets.tests if "\n" + block.text + "\n" in padded]
        if tests:
            told = f"the hidden test {tests[0].name}"
            self.report.add("hidden_test", place, told + ": " + tests[0].text.replace("\n", " / ")[:160])
        return bool(fix or tests)
