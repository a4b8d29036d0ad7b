"""Finding secrets and personal data: ours beside detect-secrets on the same texts in one run.

Prints one JSON document: precision and recall on the labelled set of ``tests/redact`` (shapes that the rules were
written with, and shapes held out), megabytes a second over real text, and how time grows with adversarial lines of
10 KB, 100 KB and 1 MB. Seconds are CPU seconds of one core. Claims: precision and recall above those of detect-secrets
with all plug-ins and with its vendors' plug-ins alone; at least 10 MB/s over real text; time grows as the text does.

    python benchmarks/redact.py [--real PATH ...] [--repeats 3] [--peer-python PYTHON | --install-peer]

``--real`` are files and folders of real text; without any, the sources of this package. ``--peer-python`` is an
interpreter that has detect-secrets; ``--install-peer`` makes one in a temporary folder (from PyPI).

A case counts as found where anything is found in it; for ours, ``whole`` also counts those where every byte of the
secret is covered, which is what redaction needs. detect-secrets looks for no personal data: its recall is also given
without the kinds that are.
"""

import argparse
import base64
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from patchgym.redact import find

ROOT = Path(__file__).resolve().parents[1]
PERSONAL = frozenset(
    {"email", "private_ip", "private_host", "home_path", "email_subdomain", "carrier_grade_address", "mac_host"}
)
SIZES = (10_000, 100_000, 1_000_000)
PEER_SIZES = SIZES[:2]
PEER_BYTES = 1_500_000
PEER = """
import json, logging, sys, time
from pathlib import Path
from detect_secrets.core.scan import scan_file
from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.settings import transient_settings

logging.disable()
mode, scratch = sys.argv[1], Path(sys.argv[2])
names = sorted(plugin.__name__ for plugin in get_mapping_from_secret_type_to_class().values())
if mode == "vendors":
    names = [name for name in names if "Entropy" not in name and name != "KeywordDetector"]
settings = {"plugins_used": [{"name": name} for name in names]}


def cpu(files):
    began = time.process_time()
    found = sum(len(list(scan_file(str(file)))) for file in files)
    return time.process_time() - began, found


with transient_settings(settings):
    # Only the secret itself decides, not what its file is called.
    cases = sorted((scratch / "cases").iterdir())
    flagged = [len(list(scan_file(str(file)))) > 0 for file in cases]
    real = sorted((scratch / "real").iterdir())
    seconds, found = cpu(real)
    lines = {file.name: cpu([file])[0] for file in sorted((scratch / "lines").iterdir())}
size = sum(file.stat().st_size for file in real)
print(json.dumps({"plugins": len(names), "flagged": flagged, "mb": size / 1e6, "seconds": seconds, "found": found,
                  "lines": lines}))
"""


def labelled() -> list[dict[str, Any]]:
    """The labelled set, made anew."""
    made = subprocess.run(
        [sys.executable, "-m", "tests.redact.labelled"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [json.loads(line) for line in made.stdout.splitlines()]


def real_files(paths: Iterable[Path]) -> list[bytes]:
    """The texts of files and of those below folders; what is no text is left out."""
    files = [
        file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path]) if file.is_file()
    ]
    texts = [file.read_bytes() for file in files]
    return [text for text in texts if b"\0" not in text[:8000]]


def adversarial(size: int) -> dict[str, bytes]:
    """Lines that blow careless patterns up."""
    draw = random.Random(5)
    units = {"at": b"@", "letter": b"a", "dot_at": b"a@a.", "jwt_head": b"eyJ", "assignment": b"key=", "url": b"://a:"}
    lines = {name: unit * (size // len(unit)) for name, unit in units.items()}
    lines["base64"] = base64.b64encode(draw.randbytes(size * 3 // 4))
    lines["tokens"] = b" ".join(
        b"acme_" + base64.b64encode(draw.randbytes(33)).replace(b"+", b"a").replace(b"/", b"B")
        for _ in range(size // 50)
    )
    lines["key_begin"] = b"-----BEGIN PRIVATE KEY-----" * (size // 27)
    return lines


def cpu(texts: Iterable[bytes]) -> tuple[float, Counter[str]]:
    """CPU seconds to look through texts, and what is found by its kind."""
    began = time.process_time()
    found = Counter(one.kind for text in texts for one in find(text))
    return time.process_time() - began, found


def judged(cases: list[dict[str, Any]], flagged: list[bool]) -> dict[str, float]:
    """Precision and recall of a list of verdicts."""
    true = [hit for case, hit in zip(cases, flagged, strict=True) if case["spans"]]
    false = sum(hit for case, hit in zip(cases, flagged, strict=True) if not case["spans"])
    seen = [hit for case, hit in zip(cases, flagged, strict=True) if case["spans"] and not case["held_out"]]
    held = [hit for case, hit in zip(cases, flagged, strict=True) if case["held_out"]]
    vendor = [h for case, h in zip(cases, flagged, strict=True) if case["spans"] and case["kind"] not in PERSONAL]
    return {
        "precision": sum(true) / max(1, sum(true) + false),
        "false_positives": false,
        "recall": sum(true) / len(true),
        "recall_seen": sum(seen) / len(seen),
        "recall_held_out": sum(held) / len(held),
        "recall_without_personal_data": sum(vendor) / len(vendor),
    }


def ours(cases: list[dict[str, Any]]) -> dict[str, object]:
    """Our verdicts, the share of secrets that are covered whole, and recall by kind."""
    flagged, whole = [], []
    for case in cases:
        found = find(case["text"].encode())
        flagged.append(bool(found))
        covered = {at for one in found for at in range(one.start, one.end)}
        whole.append(all(at in covered for start, end in case["spans"] for at in range(start, end)))
    kinds = sorted({(case["kind"], case["held_out"]) for case in cases if case["spans"]})
    by_kind = {
        f"{kind}{' (held out)' if held else ''}": round(
            statistics.mean(
                hit
                for case, hit in zip(cases, whole, strict=True)
                if case["spans"] and (case["kind"], case["held_out"]) == (kind, held)
            ),
            3,
        )
        for kind, held in kinds
    }
    parts = {
        name: statistics.mean(
            hit for case, hit in zip(cases, whole, strict=True) if case["spans"] and case["held_out"] == held
        )
        for name, held in (("whole_seen", False), ("whole_held_out", True))
    }
    return {**judged(cases, flagged), **parts, "recall_by_kind": by_kind}


def speed(texts: list[bytes], repeats: int) -> dict[str, object]:
    """Megabytes a second over real text, at the median of some turns."""
    size = sum(map(len, texts)) / 1e6
    turns = [cpu(texts) for _ in range(repeats)]
    return {
        "files": len(texts),
        "mb": round(size, 2),
        "mb_per_s": round(size / statistics.median(seconds for seconds, _ in turns), 1),
        "found": dict(turns[0][1].most_common()),
    }


def growth() -> dict[str, dict[str, float]]:
    """Milliseconds for each adversarial line by its size, and what ten times the size costs."""
    table: dict[str, dict[str, float]] = {}
    for size in SIZES:
        for name, line in adversarial(size).items():
            seconds = min(cpu([line])[0] for _ in range(3))
            table.setdefault(name, {})[f"{size // 1000}_kb_ms"] = round(seconds * 1000, 2)
    for row in table.values():
        row["last_tenfold"] = round(row["1000_kb_ms"] / row["100_kb_ms"], 1)
    return table


def peers(python: str, cases: list[dict[str, Any]], texts: list[bytes], scratch: Path) -> dict[str, object]:
    """The same of detect-secrets, with all plug-ins and with vendors' alone; of the real text, the first part."""
    for name in ("cases", "real", "lines"):
        (scratch / name).mkdir()
    for number, case in enumerate(cases):
        (scratch / "cases" / f"{number:06}.txt").write_text(case["text"])
    total = 0
    for number, text in enumerate(texts):
        if total + len(text) <= PEER_BYTES:
            (scratch / "real" / f"{number:06}.txt").write_bytes(text)
            total += len(text)
    for size in PEER_SIZES:
        (scratch / "lines" / f"base64_{size // 1000}_kb").write_bytes(adversarial(size)["base64"])
    (scratch / "peer.py").write_text(PEER)
    told: dict[str, object] = {}
    for mode in ("all", "vendors"):
        command = [python, str(scratch / "peer.py"), mode, str(scratch)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        told[f"detect_secrets_{mode}"] = {
            "plugins": found["plugins"],
            **judged(cases, found["flagged"]),
            "mb": round(found["mb"], 2),
            "mb_per_s": round(found["mb"] / found["seconds"], 3),
            "found": found["found"],
            "lines_s": {name: round(seconds, 3) for name, seconds in found["lines"].items()},
        }
    return told


def with_detect_secrets(folder: Path) -> str:
    """A new interpreter with detect-secrets, from PyPI."""
    venv.create(folder / "peer", with_pip=True)
    python = str(folder / "peer" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", "detect-secrets"], check=True)
    return python


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=Path, nargs="*", default=[ROOT / "src"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer-python", help="an interpreter that has detect-secrets")
    parser.add_argument("--install-peer", action="store_true", help="make one for this")
    options = parser.parse_args()
    cases, texts = labelled(), real_files(options.real)
    report: dict[str, object] = {
        "cases": dict(
            Counter("decoy" if not case["spans"] else "held out" if case["held_out"] else "seen" for case in cases)
        ),
        "ours": ours(cases),
        "speed": speed(texts, options.repeats),
        "growth": growth(),
    }
    with tempfile.TemporaryDirectory(prefix="patchgym-redact-") as folder:
        scratch = Path(folder)
        python = with_detect_secrets(scratch) if options.install_peer else options.peer_python
        if python is not None:
            (scratch / "work").mkdir()
            report |= peers(python, cases, texts, scratch / "work")
    load = [round(value, 2) for value in os.getloadavg()]
    report["machine"] = {"cores": os.cpu_count(), "load": load, "python": platform.python_version()}
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
