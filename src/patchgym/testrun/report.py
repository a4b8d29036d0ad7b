"""What the runner's channel carried, line by line."""

import json

from patchgym.records import Outcome
from patchgym.testrun.guarding import Ended, Guarding, Note, Planted

_OUTCOMES = frozenset(str(outcome) for outcome in Outcome)


class Report:
    """Reads the lines of one run. ``asked`` are the ids of its tests (none: all), ``watching`` says that lines were
    watched, ``guarding`` what a guarded run was asked for, ``besides`` that a plug-in of ours ran along."""

    def __init__(
        self, asked: frozenset[str], watching: bool, guarding: Guarding | None = None, besides: bool = False
    ) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self.failures: dict[str, str] = {}
        self.uncollected: dict[str, Outcome] = {}
        self.covered: dict[str, dict[int, frozenset[str]]] = {}
        self.elsewhere: frozenset[str] = frozenset()
        self.canaries: dict[str, Planted] = {}
        self.notes: list[Note] = []
        self.ended: Ended | None = None
        self.evidence: list[str] = []
        self.beside: list[object] = []
        self.complete = False
        self._asked, self._watching, self._besides = asked, watching, besides
        self._guarded = guarding is not None
        self._planted = frozenset(canary.name for canary in guarding.canaries) if guarding is not None else frozenset()
        self._order: list[str] = []

    def read(self, report: bytes) -> None:
        """Take in all lines; what the runner does not write, or writes after its end, is evidence of interference."""
        for raw in report.split(b"\n")[:-1]:  # what follows the last newline was cut off by the end of the process
            line = raw.decode("utf-8", "backslashreplace")
            record = _record(line)
            if not (self._guarded and self._take_guards(record)) and (self.complete or not self._take(record)):
                self.evidence.append(f"the report channel carried {line[:200]!r}")

    def _take_guards(self, record: object) -> bool:
        """What only the guard writes, or only its runner; also after the runner's end."""
        match record:
            case {"forged": str(line)}:
                self.evidence.append(f"the report channel carried {line!r}")
            case {"ended": dict(told)} if self.ended is None:
                self.ended = Ended.told(told)
            case {"noted": dict(told)}:
                self._take_note(told)
            case {"id": str(test), "outcome": str(outcome), "called": bool(called)} if (
                test not in self._asked and outcome in _OUTCOMES
            ):
                name = test.rpartition("::")[2]
                if name not in self._planted or name in self.canaries:
                    return False
                self.canaries[name] = Planted(test, Outcome(outcome), called)
            case _:
                return False
        return True

    def _take_note(self, told: dict[str, object]) -> None:
        match told:
            case {
                "event": str(event),
                "what": str(what),
                "path": str(path),
                "line": int(line),
                "function": str(function),
                "proof": bool(proof),
            }:
                self.notes.append(Note(event, what, path, line, function, proof))
            case _:
                self.evidence.append(f"the watch noted {str(told)[:200]}")

    def _take(self, record: object) -> bool:
        match record:
            case {"id": str(test), "outcome": str(outcome), "text": str(text)} if (
                test not in self.outcomes and outcome in _OUTCOMES and (not self._asked or test in self._asked)
            ):
                self.outcomes[test] = Outcome(outcome)
                self._order.append(test)
                if text:
                    self.failures[test] = text
            case {"collect": str(place), "outcome": str(outcome), "text": str(text)} if outcome in _OUTCOMES:
                self.failures[place] = text
                self.uncollected[place] = Outcome(outcome)
            case {"covered": str(path), "lines": dict(lines)} if self._watching:
                return self._take_lines(path, lines)
            case {"elsewhere": list(tests)} if self._watching:
                return self._take_elsewhere(tests)
            case {"beside": said} if self._besides:
                self.beside.append(said)
            case {"done": int()}:
                self.complete = True
            case _:
                return False
        return True

    def _take_elsewhere(self, tests: list[object]) -> bool:
        numbers = [test for test in tests if isinstance(test, int) and 0 <= test < len(self._order)]
        self.elsewhere = frozenset(self._order[test] for test in numbers)
        return len(numbers) == len(tests)

    def _take_lines(self, path: str, lines: dict[str, object]) -> bool:
        found: dict[int, frozenset[str]] = {}
        for line, tests in lines.items():
            if not line.isdecimal() or not isinstance(tests, list):
                return False
            if not all(isinstance(test, int) and 0 <= test < len(self._order) for test in tests):
                return False
            found[int(line)] = frozenset(self._order[test] for test in tests)
        self.covered[path] = found
        return True


def _record(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
