"""Is the first finding the planted fault, and is a clean run left alone? Every run is really made; one JSON document.

python benchmarks/diagnose.py [NAME...] > diagnose.json
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from tests.diagnose.planted.clean import CLEAN
from tests.diagnose.planted.faults import FAULTS, Bases
from tests.diagnose.planted.made import Part, make_run
from tests.diagnose.planted.unseen import UNSEEN

from patchgym.diagnose import diagnose, read_facts
from patchgym.store import RunDirectory


def main(names: list[str]) -> None:
    from tests.train.tiny import save_tiny_model

    rows = []
    with tempfile.TemporaryDirectory(prefix="patchgym-planted-") as scratch:
        place = Path(scratch)
        bases = Bases(make_run(place / "base", [Part()]), save_tiny_model(place / "tiny"), place / "cache")
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
    main(sys.argv[1:])
