"""What speaks against an attempt, out of one guarded run of its tests."""

import ast
import signal
from collections.abc import Iterable, Sequence
from dataclasses import replace

from patchgym.content import Entry, ObjectStore
from patchgym.records import Evidence, Outcome
from patchgym.testrun import Canary, Note, TestRun

_QUOTED = 300
_LONGEST_SOURCE = 1_000_000
_PASSING = frozenset({Outcome.PASSED, Outcome.XPASSED})


def evidence_of(run: TestRun, canaries: Sequence[Canary]) -> tuple[Evidence, ...]:
    """Everything that the run showed: forged lines, canaries that came out wrong, what the watch saw."""
    forged = [
        Evidence(kind="report_channel", quote=line[:_QUOTED], why="Only the runner writes there.", proof=True)
        for line in run.evidence
    ]
    return (*forged, *_of_guard(run), *_of_canaries(run, canaries), *map(_of_note, run.notes))


def _of_guard(run: TestRun) -> Iterable[Evidence]:
    """A guard that was killed: nothing but that signal ends it. Where no control group counts what lack of memory
    kills, it may have been that."""
    if run.ended is None and run.process.signal == signal.SIGKILL:
        counted = run.process.limits_by.startswith("cgroup")
        yield Evidence(kind="report_channel", why="The process that holds the channel was killed.", proof=counted)


def _of_canaries(run: TestRun, canaries: Sequence[Canary]) -> Iterable[Evidence]:
    """Canaries whose outcome is another than it must be. One whose set-up went wrong says nothing; where no canary says
    anything although tests passed, that is odd, and no proof."""
    if not run.complete:
        return
    told = 0
    for canary in canaries:
        seen = run.canaries.get(canary.name)
        if seen is None or not seen.called:
            continue
        told += 1
        if (seen.outcome in _PASSING) != (canary.outcome in _PASSING) or seen.outcome is Outcome.SKIPPED:
            yield Evidence(
                kind="canary",
                where=seen.test,
                quote=canary.source[:_QUOTED],
                why=f"This test of the grader must be {canary.outcome} and came out as {seen.outcome}.",
                proof=True,
            )
    passed = any(outcome is Outcome.PASSED for outcome in run.outcomes.values())
    if canaries and not told and passed:
        yield Evidence(kind="canary", why="Tests passed, and none of the grader's own among them was run.")


def _of_note(note: Note) -> Evidence:
    changed = note.event == "changed"
    why = "What decides was changed." if changed else f"The code asks for {note.event} ({note.what})."
    return Evidence(
        kind="watch",
        where=f"{note.path}:{note.line}" if note.path else "",
        quote=note.what if changed else f"{note.event} in {note.function}",
        why=why,
        proof=note.proof,
    )


def key_of(evidence: Evidence) -> tuple[str, str, str]:
    """What makes two pieces of evidence the same thing in two runs: lines move."""
    return evidence.kind, evidence.where.rpartition(":")[0] if evidence.kind == "watch" else "", evidence.quote


def unusual(run: TestRun, objects: ObjectStore, graded: dict[str, Entry], usual: Iterable[dict[str, Entry]]) -> TestRun:
    """The run without the notes about code that stands in one of the ``usual`` trees word for word: what the base or
    the solution does says nothing of the patch."""
    known = list(usual)
    kept = tuple(note for note in run.notes if note.proof or not _stands(note, objects, graded, known))
    return replace(run, notes=kept)


def _stands(note: Note, objects: ObjectStore, graded: dict[str, Entry], usual: Sequence[dict[str, Entry]]) -> bool:
    mine = _text(objects, graded.get(note.path))
    part = _part(mine, note.line)
    return part is not None and any(part in _text(objects, tree.get(note.path)) for tree in usual)


def _text(objects: ObjectStore, entry: Entry | None) -> str:
    return objects.get(entry.id).decode("utf-8", "replace") if entry is not None else ""


def _part(text: str, line: int) -> str | None:
    """The function around a line, or the statement of the module; None where that cannot be told."""
    if not text or len(text) > _LONGEST_SOURCE:
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    best: ast.stmt | None = max(around, key=lambda node: node.lineno, default=None)
    if best is None:
        best = next((node for node in tree.body if node.lineno <= line <= (node.end_lineno or 0)), None)
    if best is None:
        return None
    lines = text.split("\n")[best.lineno - 1 : best.end_lineno]
    return "\n".join(lines)
