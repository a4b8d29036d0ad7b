"""Which recorded calls become probes, and which of them count."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.grading.probes.blob import Probe
from patchgym.grading.probes.compare import Told, agrees, pruned, structured

_WORD = re.compile(rb"[A-Za-z_]\w*")
_A_TEST = 4


class Call(NamedTuple):
    """A recorded call. ``before`` is a digest of what its arguments held in the test (empty: not known), ``seen`` what
    was told of its result there, in a list; None where nothing can be said."""

    test: str
    function: str
    boundary: bool
    steps: list[JsonValue]
    before: str
    seen: list[JsonValue] | None

    @property
    def private(self) -> bool:
        """Whether it is a helper's, which another solution may do without."""
        parts = self.function.split(".")
        return not self.boundary and any(part.startswith("_") and not part.endswith("__") for part in parts)


def recorded_calls(said: Iterable[object], passed: Collection[str], left_out: Counter[str]) -> list[Call]:
    """The different calls that the recorder wrote of tests that passed; ``left_out`` counts the others by the reason.
    What the recorder does not write is passed over: the code under test may have written it."""
    found: list[Call] = []
    for one in said:
        match one:
            case {"test": str(test), "function": str(name), "boundary": bool(boundary), "steps": [_, *_] as steps}:
                if test in passed:
                    seen = [one["seen"]] if isinstance(one, dict) and "seen" in one else None
                    before = str(one.get("before", "")) if isinstance(one, dict) else ""
                    found.append(Call(test, name, boundary, steps, before, seen))
            case {"left_out": dict(reasons)}:
                counts = {str(k)[:80]: v for k, v in reasons.items() if isinstance(v, int) and not isinstance(v, bool)}
                left_out.update(counts)
    return found


def spread(calls: list[Call], most: int) -> list[Call]:
    """At most so many calls: those at the boundary first, spread over the tests, so many of a test for a start."""
    taken: list[Call] = []
    for boundary in (True, False):
        by_test: dict[str, list[Call]] = {}
        for call in calls:
            if call.boundary is boundary:
                by_test.setdefault(call.test, []).append(call)
        for turn in range(max(map(len, by_test.values()), default=0)):
            taken += [found[turn] for found in by_test.values() if turn < min(len(found), _A_TEST)]
    rest = [call for call in calls if call not in taken]
    return [*taken, *rest][:most]


def trustworthy(call: Call, told: list[Told | None]) -> str:
    """Why the solution's answers are no measure; empty where they are."""
    first = told[0]
    if first is None or "ended" in first:
        return "does not end"
    if "unmade" in first:
        return "argument that cannot be made again alone"
    if any(_text(one) != _text(first) for one in told):
        return "differs from run to run"
    if "raised" not in first and not structured(first.get("result")) and not first.get("after"):
        return "result without structure"
    if call.before and first.get("before") != call.before:
        return "not as it was in the test"
    if call.seen is not None:
        as_seen = call.seen[0] is None if "raised" in first else _text(call.seen[0]) == _text(first.get("result"))
        if not as_seen:
            return "not as it was in the test"
    return ""


def decided(
    call: Call,
    mild: bool | None,
    gold: Told | None,
    base: Told | None,
    rewrite: Told | None,
    under_test: Told | None,
    names: Collection[str],
) -> Probe:
    """The probe of a call that is trustworthy; ``mild`` is None for a recorded one. A recorded call counts, a helper's
    only where the workspace as it is answers it rightly: the bug may be mended around it. A variation counts where it
    is mild, raises nothing, and solution, workspace and ``rewrite`` (None: there is none) agree."""
    assert gold is not None
    kept = pruned({key: value for key, value in gold.items() if key != "before"}, names)
    expected = kept if isinstance(kept, dict) else {}
    noticing = base is None or not agrees(expected, base)
    same_rewritten = rewrite is not None and agrees(expected, rewrite)
    if mild is None:
        counts = not (call.private and noticing)
    else:
        counts = mild and not noticing and same_rewritten and "raised" not in expected
    return Probe(
        function=call.function,
        kind="recorded" if mild is None else "varied",
        test=call.test,
        boundary=call.boundary,
        steps=call.steps,
        expected=expected,
        counts=counts,
        private=call.private,
        steady=under_test is not None and _text(under_test) == _text(gold),
        noticing=noticing,
    )


def kept(probes: Iterable[Probe]) -> tuple[Probe, ...]:
    """Few enough to be asked all, in every grading: those that notice what is wrong first, else in their order."""
    found: list[Probe] = []
    most = {("recorded", True): 28, ("varied", True): 12, ("recorded", False): 8, ("varied", False): 12}
    for probe in sorted(probes, key=lambda one: not one.noticing):
        kind = probe.kind, probe.counts
        if most[kind] > 0:
            most[kind] -= 1
            found.append(probe)
    return tuple(found)


def preserves(gold: Iterable[Told | None], rewrite: Iterable[Told | None]) -> bool:
    """Whether a rewrite answers the recorded calls as the solution does, and so is fit to judge others."""
    return all(
        one is None or (other is not None and agrees(one, other)) for one, other in zip(gold, rewrite, strict=True)
    )


def identifiers(objects: ObjectStore, tree: str) -> frozenset[str]:
    """Every word in the Python files of a tree."""
    found: set[bytes] = set()
    for path, entry in objects.entries(tree).items():
        if path.endswith(".py"):
            found.update(_WORD.findall(objects.get(entry.id)))
    return frozenset(word.decode() for word in found)


def _text(told: object) -> str:
    return json.dumps(told, sort_keys=True)
