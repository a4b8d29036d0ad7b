"""How a check says what it found: its place, its threshold and where that comes from are said once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from patchgym.records import Finding, Status

Confidence = Literal["high", "medium", "low"]
_NAMED = 5


@dataclass(frozen=True)
class Rule:
    """One check. ``threshold`` says in words what it holds the run against, ``source`` where that comes from."""

    step: int
    check: str
    threshold: str
    source: Literal["article", "measured", "convention"]

    def ok(
        self,
        evidence: str,
        figures: Mapping[str, float] | None = None,
        *,
        confidence: Confidence = "high",
        action: str = "",
    ) -> Finding:
        """It is as it should be."""
        return self._finding(Status.OK, evidence, action, (), figures, confidence)

    def broken(
        self,
        evidence: str,
        action: str,
        named: Iterable[str] = (),
        figures: Mapping[str, float] | None = None,
        *,
        confidence: Confidence = "high",
    ) -> Finding:
        """It is broken; ``action`` says what to do and ``named`` what shows it."""
        return self._finding(Status.BROKEN, evidence, action, named, figures, confidence)

    def unknown(
        self, why: str, action: str = "", figures: Mapping[str, float] | None = None, *, confidence: Confidence = "low"
    ) -> Finding:
        """The run does not tell, and ``why``."""
        return self._finding(Status.UNKNOWN, why, action, (), figures, confidence)

    def _finding(
        self,
        status: Status,
        evidence: str,
        action: str,
        named: Iterable[str],
        figures: Mapping[str, float] | None,
        confidence: Confidence,
    ) -> Finding:
        return Finding(
            step=self.step,
            check=self.check,
            status=status,
            evidence=evidence,
            threshold=self.threshold,
            source=self.source,
            confidence=confidence,
            action=action,
            named=tuple(dict.fromkeys(named))[:_NAMED],
            figures=dict(figures or {}),
        )


def by_count(count: int) -> Confidence:
    """How sure a share of ``count`` attempts is: 30 tell a half from a quarter (by chance in 1% of cases), 10 in a
    tenth of them."""
    return "high" if count >= 100 else "medium" if count >= 30 else "low"


def named_few(names: Iterable[str], most: int = 3) -> str:
    """The first few names and how many more there are."""
    every = list(dict.fromkeys(names))
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more
