"""Is the first finding the planted fault, and is a clean run left alone? How long do alarms take, and do they grow with
the attempts? One JSON document.

python benchmarks/diagnose.py [NAME...] > diagnose.json           every run is really made
python benchmarks/diagnose.py --growth 100 300 1000 > growth.json
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

from tests.diagnose.planted.clean import CLEAN
from tests.diagnose.planted.faults import FAULTS, Bases
from tests.diagnose.planted.made import EACH_GRADED, Part, make_run
from tests.diagnose.planted.unseen import UNSEEN
from tests.diagnose.test_alarms import attempt
from tests.records_for_tests import make_manifest, make_task

from patchgym.diagnose import Alarms, AlarmSettings, DiagnoseSettings, diagnose, read_facts
from patchgym.records import Trajectory
from patchgym.store import RunDirectory

_GROUP, _STEPS = 4, 8
_VALUES = (0.0, 0.3, 1.0, 0.0)
_REPEATS = 3
_LINEAR = 1.25
"""What an attempt may cost more in the largest run than in the smallest: noise of the clock, and no growth."""


def growth(counts: Sequence[int]) -> None:
    """Time the looks of an alarm at runs of so many attempts: the first, which reads all of the run, the one after a
    round of as many attempts again that are at hand, and one after which nothing is new."""
    rows: list[dict[str, float]] = []
    for count in sorted(counts):
        looks = [_looks(count) for _ in range(_REPEATS)]
        row = {name: median(look[name] for look in looks) for name in looks[0]}
        told = ", ".join(f"{name} {value:.3f} s" for name, value in row.items())
        print(f"{count} attempts: {told}", file=sys.stderr)
        rows.append({"attempts": count, **{name: round(value, 4) for name, value in row.items()}})
    first, last = rows[0], rows[-1]
    more = last["attempts"] / first["attempts"]
    grown = {name: round(last[name] / first[name] / more, 2) for name in first if name != "attempts"}
    linear = all(value <= _LINEAR for name, value in grown.items() if name != "floor")
    json.dump({"looks": rows, "an_attempt_costs_so_many_times": grown, "linear": linear}, sys.stdout, indent=1)
    print()


def _looks(count: int) -> dict[str, float]:
    """The seconds of each look; the floor is parsing the lines of the run."""
    with tempfile.TemporaryDirectory(prefix="patchgym-growth-") as scratch:
        run = RunDirectory.open_for_writing(Path(scratch) / "run", make_manifest(command="loop"))
        run.objects.write_tree({})
        run.keep_tasks([make_task(f"demo-{at}") for at in range(-(-count // _GROUP))])
        for one in _attempts(count, "round-1"):
            run.append(one)
        alarms = Alarms(run, DiagnoseSettings(), AlarmSettings(pause=False))
        found = {"first": _timed(lambda: alarms.after("round-1"))}
        more = list(_attempts(count, "round-2"))
        for one in more:
            run.append(one)
        found["after_a_round"] = _timed(lambda: alarms.after("round-2", more))
        found["nothing_new"] = _timed(lambda: alarms.after("round-2, update"))
        lines = (run.path / "trajectories.jsonl").read_text(encoding="utf-8").splitlines()[:count]
        found["floor"] = _timed(lambda: [json.loads(line) for line in lines])
        run.close()
    return found


def _attempts(count: int, phase: str) -> Iterator[Trajectory]:
    for at in range(count):
        task, sample = divmod(at, _GROUP)
        yield attempt(task, sample, _VALUES[(task + sample) % len(_VALUES)], phase=phase, steps=_STEPS)


def _timed(look: Callable[[], object]) -> float:
    began = time.perf_counter()
    look()
    return time.perf_counter() - began


def planted(names: Sequence[str]) -> None:
    """Make the runs of these names (none: all), and look at each."""
    from tests.train.tiny import save_tiny_model

    rows = []
    with tempfile.TemporaryDirectory(prefix="patchgym-planted-") as scratch:
        place = Path(scratch)
        base = make_run(place / "base", [Part(settings=EACH_GRADED)])
        bases = Bases(base, save_tiny_model(place / "tiny"), place / "cache")
        wanted = {name: (fault.check, fault.make) for name, fault in {**FAULTS, **UNSEEN}.items()}
        wanted |= {name: ("", make) for name, make in CLEAN.items()}
        for name, (check, make) in wanted.items():
            if names and name not in names:
                continue
            began = time.monotonic()
            path = make(place / name, bases)
            made, began = time.monotonic() - began, time.monotonic()
            found = diagnose(read_facts(RunDirectory.read(path))).first
            got = found.check if found is not None else ""
            print(f"{'right' if got == check else 'WRONG'} {name}: {got or 'nothing'}", file=sys.stderr)
            rows.append(
                {
                    "run": name,
                    "kind": "clean" if not check else "unseen" if name in UNSEEN else "planted",
                    "planted": check or None,
                    "found": got or None,
                    "right": got == check,
                    "evidence": found.evidence if found is not None else "",
                    "made_s": round(made, 2),
                    "diagnosed_s": round(time.monotonic() - began, 3),
                }
            )
    kinds = {kind: [row for row in rows if row["kind"] == kind] for kind in ("planted", "unseen", "clean")}
    told = {
        kind: {"runs": len(found), "right": sum(bool(row["right"]) for row in found)} for kind, found in kinds.items()
    }
    json.dump({"summary": told, "runs": rows}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="Runs to make. [all]")
    parser.add_argument("--growth", type=int, nargs="+", metavar="N", help="Time alarms at N attempts.")
    asked = parser.parse_args()
    if asked.growth:
        growth(asked.growth)
    else:
        planted(asked.names)
