"""The checklist of a run as pages show it: what commands concluded and left in the run, and what is asked for now."""

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from patchgym.records import Record
from patchgym.store import RunFiles

_MARKS = {"ok": "✓", "note": "•", "broken": "✕", "unknown": "?"}


class Check(Record):
    """One link of the chain."""

    name: str
    status: str
    """``ok``, ``note``, ``broken`` or ``unknown``."""
    evidence: str
    threshold: str = ""
    confidence: str = ""
    action: str = ""
    named: tuple[str, ...] = ()
    """The tasks and trajectories that show it."""
    step: int | None = None
    """Its place in the order of looking."""

    @property
    def mark(self) -> str:
        """A sign that tells the status without colour."""
        return _MARKS.get(self.status, "?")


class Checks(Record):
    """Checks in their order, and what they come to."""

    title: str
    checks: tuple[Check, ...]
    verdict: str = ""
    left: tuple[str, ...] = ()
    """Checks that were not made, because something before them is broken."""

    @property
    def first_broken(self) -> Check | None:
        """What to mend first."""
        return next((check for check in self.checks if check.status == "broken"), None)


def kept_checklists(files: RunFiles) -> list[Checks]:
    """The checklists that commands left in a run: the loop's judgement, the gates of its stages, a diagnosis."""
    found = []
    report = files.document("report.json") or {}
    for name, title in (("judgement", "At the end of the loop"), ("checklist", "At the end of the run")):
        found += [read_checklist(value, title) for value in _objects(report.get(name))]
    for document in ("diagnosis.json", "checklist.json"):
        found += [read_checklist(value, "patchgym diagnose") for value in _objects(files.document(document))]
    for number, row in enumerate(files.rows("gates.jsonl"), start=1):
        inner = next((value for value in _objects(row.get("checklist"))), row)
        place = _text(row, "place", "stage", "name")
        passed = row.get("passed")
        ending = "" if not isinstance(passed, bool) else ", passed" if passed else ", not passed"
        found.append(read_checklist(inner, f"Gate {number}{f' after {place}' if place else ''}{ending}"))
    return [one for one in found if one.checks or one.verdict]


def read_checklist(value: Mapping[str, JsonValue], title: str) -> Checks:
    """A checklist from the JSON of any record that has findings."""
    findings = next((value[key] for key in ("findings", "checks") if isinstance(value.get(key), list)), [])
    assert isinstance(findings, list)
    return Checks(
        title=title,
        checks=tuple(_check(one) for one in findings if isinstance(one, dict)),
        verdict=_text(value, "verdict"),
        left=_texts(value, "left"),
    )


def _check(value: Mapping[str, JsonValue]) -> Check:
    step = value.get("step")
    return Check(
        named=_texts(value, "named"),
        step=step if isinstance(step, int) else None,
        name=_text(value, "check", "name"),
        status=_text(value, "status", "level") or "unknown",
        evidence=_text(value, "evidence") or _text(value, "why"),
        threshold=_sentence(value, "threshold", "source", "threshold_source"),
        confidence=_text(value, "confidence"),
        action=_text(value, "action", "next", "next_action", "mend"),
    )


def _sentence(value: Mapping[str, JsonValue], name: str, *sources: str) -> str:
    told, source = _text(value, name), _text(value, *sources)
    return f"{told} ({source})" if told and source else told


def _text(value: Mapping[str, JsonValue], *names: str) -> str:
    """The first of some values, as words."""
    found = next((value[name] for name in names if value.get(name) not in (None, "")), "")
    if isinstance(found, float):
        return f"{found:.4g}"
    if isinstance(found, list):
        return "; ".join(str(one) for one in found)
    if isinstance(found, dict):
        return "; ".join(f"{key}: {one}" for key, one in found.items())
    return str(found)


def _texts(value: Mapping[str, JsonValue], name: str) -> tuple[str, ...]:
    found = value.get(name)
    return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()


def _objects(value: JsonValue) -> Sequence[dict[str, JsonValue]]:
    return [value] if isinstance(value, dict) else []
