"""How like two observations of one action are, and why they may differ."""

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from patchgym.records import Observation, Stream

_DAY = r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6}"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}"
_MASKS = tuple(
    (re.compile(pattern), mask)
    for pattern, mask in (
        # Points in time, before the numbers in them are taken for something else.
        (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?", "<date>"),
        (
            rf"{_DAY},? (?:\d\d? )?{_MONTH}(?: +\d{{1,2}})?(?: +\d\d:\d\d:\d\d)?(?: [A-Z]{{3,4}})?(?: \d{{4}})?",
            "<date>",
        ),
        (rf"\b{_MONTH} {{1,2}}\d{{1,2}} {{1,2}}(?:\d\d:\d\d|\d{{4}})\b", "<date>"),
        (r"\b\d\d:\d\d:\d\d(?:\.\d{1,9})?\b", "<time>"),
        # Durations with their unit.
        (r"\b\d{1,6}m\d{1,3}(?:\.\d{1,6})?s\b", "<duration>"),
        (r"\b\d{1,9}(?:\.\d{1,9})? ?(?:ns|us|µs|ms|s|secs?|seconds?|minutes?)\b", "<duration>"),
        # Where objects lie in memory, and what temporary files are called.
        (r"\b0x[0-9a-fA-F]{6,16}\b", "<address>"),
        (r"/(?:tmp|var/tmp|dev/shm)/[^\s'\":,;)\]}>]{1,200}", "<temporary path>"),
        (r"\b(pid|PID|process)([ =:]{1,3})\d{1,10}\b", r"\1\2<pid>"),
    )
)
_NETWORK = re.compile(
    r"Name or service not known|Temporary failure in name resolution|Network is unreachable|No route to host"
    r"|Connection (?:refused|reset)|Could not resolve host|Max retries exceeded|timed out connecting",
    re.IGNORECASE,
)
_TIMES = re.compile(r"<(?:date|time|duration)>")
_NUMBERS = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_RESOURCES = ("out_of_memory", "disk_full", "output_cut")
_SHOWN_LINES, _SHOWN_WIDTH = 12, 160


def normalised(text: str) -> str:
    """A text without what differs between any two runs: durations, dates, addresses, temporary paths, process ids."""
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text


@dataclass(frozen=True)
class Difference:
    """One part that came out otherwise, as it was recorded and as it is now."""

    what: str
    recorded: str
    replayed: str

    @property
    def normalised(self) -> bool:
        """Whether nothing is left of it after normalising."""
        return self.what in ("shown", "stdout", "stderr") and normalised(self.recorded) == normalised(self.replayed)

    def shown(self) -> str:
        """The first differing lines, recorded with a minus and replayed with a plus."""
        old, new = (normalised(text).splitlines() for text in (self.recorded, self.replayed))
        lines = [
            line[:_SHOWN_WIDTH]
            for line in difflib.unified_diff(old, new, lineterm="", n=0)
            if not line.startswith(("---", "+++", "@@"))
        ]
        more = [f"... and {len(lines) - _SHOWN_LINES} more lines"] if len(lines) > _SHOWN_LINES else []
        return "\n".join([f"{self.what}:", *(f"  {line}" for line in [*lines[:_SHOWN_LINES], *more])])


def compare(recorded: Observation, replayed: Observation, blob: Callable[[str], bytes]) -> list[Difference]:
    """What differs between two observations; ``blob`` gives the bytes of a stored stream. What the log does not say
    (an exit code, a stream) is not compared. Wall time is none of it."""
    found = [Difference("shown", recorded.shown, replayed.shown)] if recorded.shown != replayed.shown else []
    for name in ("ok", "exit_code", "ending", "tests"):
        old, new = getattr(recorded, name), getattr(replayed, name)
        if old != new and old not in (None, "none"):
            found.append(Difference(name, _told(old), _told(new)))
    for name, one, other in (
        ("stdout", recorded.stdout, replayed.stdout),
        ("stderr", recorded.stderr, replayed.stderr),
    ):
        if one is not None and other is not None:
            texts = _bytes(one, blob), _bytes(other, blob)
            if texts[0] != texts[1]:
                found.append(Difference(name, *(text.decode("utf-8", "backslashreplace") for text in texts)))
    return found


def reason_of(
    recorded: Observation, replayed: Observation, again: Sequence[Observation], differences: Sequence[Difference]
) -> str:
    """The likely reason of a divergence. ``again`` are further replays of the step, each in a sandbox of its own.

    ``time``: one of the two ran out of time, or only figures beside times differ. ``resource``: another limit struck.
    ``network``: one of the two speaks of a connection. ``order``: the same lines in another order. ``randomness``:
    replays differ among themselves. ``environment``: replays agree with each other and not with the record.
    """
    if recorded.timed_out != replayed.timed_out:
        return "time"
    if recorded.ending != replayed.ending and {recorded.ending, replayed.ending} & set(_RESOURCES):
        return "resource"
    texts = [
        (normalised(one.recorded), normalised(one.replayed))
        for one in differences
        if one.what in ("shown", "stdout", "stderr")
    ]
    if any(bool(_NETWORK.search(old)) != bool(_NETWORK.search(new)) for old, new in texts):
        return "network"
    if texts and all(sorted(old.splitlines()) == sorted(new.splitlines()) for old, new in texts):
        return "order"
    if texts and all(_TIMES.search(old) and _NUMBERS.sub("0", old) == _NUMBERS.sub("0", new) for old, new in texts):
        return "time"
    if len({(one.exit_code, one.ending, normalised(one.shown)) for one in (replayed, *again)}) > 1:
        return "randomness"
    return "environment"


def _told(value: object) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{key}: {item}" for key, item in sorted(value.items()))
    return str(value)


def _bytes(stream: Stream, blob: Callable[[str], bytes]) -> bytes:
    return blob(stream.blob) if stream.blob is not None else stream.text.encode("utf-8")
