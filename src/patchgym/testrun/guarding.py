"""What a guarded run is asked for beside its tests, and what comes back of that."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from patchgym.records import Outcome


@dataclass(frozen=True)
class Canary:
    """A test whose outcome is known: ``source`` is one function called ``name``, which the runner puts into a new file
    at ``path`` where it is ``own``, else into the test file whose turn it is; ``at`` is a share of the way through all
    tests, and ``line`` where it seems to begin. It must come out as ``outcome``."""

    path: str
    name: str
    source: str
    own: bool
    at: float
    line: int
    outcome: Outcome


@dataclass(frozen=True)
class Planted:
    """What became of a canary, whose pytest id is ``test``. ``called`` is False where its set-up already went wrong, so
    that it was never run."""

    test: str
    outcome: Outcome
    called: bool


@dataclass(frozen=True)
class Note:
    """Something that the watch saw: an audit event or ``changed``, what it was about, the code that asked, and whether
    no honest code does it."""

    event: str
    what: str
    path: str
    line: int
    function: str
    proof: bool


@dataclass(frozen=True)
class Ended:
    """How the tests' process ended: ``cpu`` and ``wall`` seconds of it; ``waited``, seconds that it was ready to run
    and had no CPU, known of some that ran out of time; whether the guard was out of its reach (``sealed``)."""

    timed_out: bool
    wall: float
    cpu: float
    waited: float | None
    sealed: bool

    @classmethod
    def told(cls, record: Mapping[str, object]) -> "Ended | None":
        """From the guard's last line; None where it is none."""
        match record:
            case {
                "timed_out": bool(timed_out),
                "wall": float() | int() as wall,
                "cpu": float() | int() as cpu,
                "waited": (float() | int() | None) as waited,
                "sealed": bool(sealed),
            }:
                return cls(timed_out, wall, cpu, waited, sealed)
        return None


@dataclass(frozen=True)
class Guarding:
    """``canaries`` are planted among the tests; with ``watch``, what decides is watched: compared at a few moments that
    are drawn, or after each test where that is ``thorough``."""

    canaries: tuple[Canary, ...] = ()
    watch: bool = False
    thorough: bool = False
    tests: tuple[str, ...] = ()
    """The test files, which may look at whatever they like."""

    def request(self, timeout_s: float) -> dict[str, JsonValue]:
        """What the runner is told of it; not how the canaries must come out."""
        told = ("path", "name", "source", "own", "at", "line")
        return {
            "guard": timeout_s,
            "canaries": [{name: getattr(canary, name) for name in told} for canary in self.canaries],
            "watch": list(self.tests) if self.watch else None,
            "thorough": self.thorough,
        }
