"""Finding duplicates among 100,000 records: ours, comparing each with each, and datasketch on the same sets.

Prints one JSON document: CPU seconds, peak memory and ratios. Claims: time grows nearly as the number of records does;
every planted duplicate is found and nothing else; the search is faster than datasketch's and takes a small part of what
all pairs would.

    python benchmarks/dedup.py [--sizes 10000,30000,100000] [--peer-python PYTHON | --install-peer]

The records are made up by a seeded script: functions of ten to thirty lines, each with a planted bug, its patch and a
statement; one in ten is a near copy of an earlier record. Each measurement runs in a process of its own.
``--peer-python`` is an interpreter that has datasketch; ``--install-peer`` makes one in a temporary folder (from PyPI).
"""

import argparse
import json
import platform
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

from patchgym.tasks.overlap.fingerprints import fingerprint
from patchgym.tasks.overlap.functions import Function
from patchgym.tasks.overlap.groups import Groups
from patchgym.tasks.overlap.material import Material
from patchgym.tasks.overlap.minhash import BANDS, ROWS, THRESHOLD, members, near_pairs, plain_band_keys
from patchgym.tasks.overlap.pairs import find_overlap

COPY_EVERY = 10
SAMPLE = 2000
LINES = (
    "{a} = {b} + {c}",
    "{a} = {f}({b}, {c})",
    "{a} = [{f}({d}) for {d} in {b} if {d} != {c}]",
    "if {a} < {b}:\n        {c} = {a} - {n}",
    "for {a} in {b}:\n        {c}.append({f}({a}))",
    "while {a} > {n}:\n        {a} = {a} // {m}",
    "{a}, {b} = {b}, {a} * {n}",
    "try:\n        {a} = {b}[{c}]\n    except KeyError:\n        {a} = {n}",
    "{a}.{f}({b}, key={c}, limit={n})",
    "{a} = {b}.{f}() or {c}",
    "with {f}({a}) as {b}:\n        {c} = {b}.read({n})",
    '{a} = "{w} {x}".format({b})',
)
WORDS = 4000


def name(draw: random.Random) -> str:
    """A made-up name; low numbers come more often, as words do."""
    return f"w{int(WORDS ** draw.random())}"


def body(draw: random.Random) -> list[str]:
    """The lines of a made-up function."""
    lines = []
    for _ in range(draw.randint(10, 30)):
        names = {key: name(draw) for key in "abcdfwx"}
        lines += f"    {draw.choice(LINES).format(**names, n=draw.randint(0, 99), m=draw.randint(2, 9))}".split("\n")
    return [f"def {name(draw)}_{name(draw)}({name(draw)}, {name(draw)}):", *lines, f"    return {name(draw)}"]


def record(number: int, lines: list[str], at: int, broken: str, told: list[str]) -> Material:
    """A record: the function with its line ``at`` broken, the patch that mends it, and a statement."""
    bad = [*lines[:at], broken, *lines[at + 1 :]]
    first, last = max(0, at - 3), min(len(lines), at + 4)
    hunk = [*(f" {line}" for line in lines[first:at]), f"-{broken}", f"+{lines[at]}"]
    hunk += [f" {line}" for line in lines[at + 1 : last]]
    head = f"--- a/m{number}.py\n+++ b/m{number}.py\n@@ -{first + 1},{last - first} +{first + 1},{last - first} @@\n"
    function = Function(path=f"m{number}.py", name="f", before="\n".join(bad), after="\n".join(lines))
    return Material(
        id=f"r{number}",
        repo=f"repo{number}",
        patches=(head + "\n".join(hunk) + "\n",),
        functions=(function,),
        statements=(" ".join(told),),
    )


def records(count: int) -> Iterator[tuple[Material, int | None]]:
    """The records, each with the number of the one that it is a near copy of."""
    draw = random.Random(7)
    kept: list[tuple[int, list[str], int, str, list[str]]] = []
    for number in range(count):
        if number % COPY_EVERY == COPY_EVERY - 1:
            origin, lines, at, broken, told = draw.choice(kept)
            other = next(line for line in range(1, len(lines)) if abs(line - at) > 4)
            lines = [*lines[:other], f"    {name(draw)} = {name(draw)}", *lines[other + 1 :]]
            yield record(number, lines, at, broken, [*told[:-2], name(draw), name(draw)]), origin
            continue
        lines = body(draw)
        at = draw.randint(1, len(lines) - 2)
        broken = f"    {name(draw)} = {name(draw)} - {draw.randint(0, 99)}"
        told = [name(draw) for _ in range(draw.randint(40, 120))]
        if len(kept) < 5000:
            kept.append((number, lines, at, broken, told))
        yield record(number, lines, at, broken, told), None


def ours(count: int) -> dict[str, float]:
    """Everything on ``count`` records, in this process."""
    origins: list[int | None] = []
    making = fingerprinting = 0.0
    prints = []
    began = time.process_time()
    for material, origin in records(count):
        made = time.process_time()
        making += made - began
        prints.append(fingerprint(material))
        origins.append(origin)
        began = time.process_time()
        fingerprinting += began - made
    overlap = find_overlap(prints)
    comparing = time.process_time() - began
    component = {place: part[0] for part in overlap.components(count) for place in part}
    copies = [(number, origin) for number, origin in enumerate(origins) if origin is not None]
    found = sum(component[number] == component[origin] for number, origin in copies)
    wanted = {number for number, _ in copies} | {origin for _, origin in copies}
    joined = {place for pair in (*overlap.duplicates, *overlap.versions) for place in pair[:2]}
    return {
        "records": count,
        "fingerprint_s": fingerprinting,
        "compare_s": comparing,
        "total_s": fingerprinting + comparing,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "planted": len(copies),
        "planted_found_share": found / len(copies),
        "others_joined": len(joined - wanted),
    }


def function_sets(count: int) -> list[bytes]:
    """The sets of token runs of the records' functions, which ours and the peer's search both get."""
    return [fingerprint(material).bodies[0].tokens for material, _ in records(count)]


def search(count: int, scratch: Path) -> dict[str, float]:
    """The search alone, with NumPy and without, and each with each on a sample; the sets are left for the peer."""
    sets = function_sets(count)
    with (scratch / "sets").open("wb") as stream:
        for packed in sets:
            stream.write(struct.pack("=I", len(packed)) + packed)
    began = time.process_time()
    found = near_pairs(sets)
    ours_s = time.process_time() - began
    part = sets[:SAMPLE]
    began = time.process_time()
    fast = near_pairs(part)
    part_s = time.process_time() - began
    began = time.process_time()
    plain = near_pairs(part, band_keys=plain_band_keys)
    plain_s = time.process_time() - began
    sample = [members(packed) for packed in part]
    began = time.process_time()
    exact = [
        (one, other)
        for other in range(SAMPLE)
        for one in range(other)
        if len(sample[one] & sample[other]) >= THRESHOLD * len(sample[one] | sample[other])
    ]
    naive_s = time.process_time() - began
    groups = Groups(SAMPLE)
    for pair in fast:
        groups.join(pair.first, pair.second)
    return {
        "records": count,
        "ours_s": ours_s,
        "pairs": len(found),
        "sample": SAMPLE,
        "sample_ours_s": part_s,
        "sample_without_numpy_s": plain_s,
        "sample_the_same_without_numpy": float(fast == plain),
        "sample_all_pairs_s": naive_s,
        "all_pairs_extrapolated_s": naive_s * (count / SAMPLE) ** 2,
        "sample_alike": len(exact),
        "sample_found_share": sum(groups.same(*pair) for pair in exact) / len(exact),
    }


PEER = f"""
import json, struct, sys, time
from datasketch import MinHash, MinHashLSH
sets = []
with open(sys.argv[1], "rb") as stream:
    while head := stream.read(4):
        data = stream.read(struct.unpack("=I", head)[0])
        sets.append([data[at:at + 8] for at in range(0, len(data), 8)])
began = time.process_time()
lsh = MinHashLSH(num_perm={BANDS * ROWS}, params=({BANDS}, {ROWS}))
pairs = 0
for number, parts in enumerate(sets):
    minhash = MinHash(num_perm={BANDS * ROWS})
    minhash.update_batch(parts)
    mine = set(parts)
    for other in lsh.query(minhash):
        theirs = set(sets[other])
        pairs += len(mine & theirs) >= {THRESHOLD} * len(mine | theirs)
    lsh.insert(number, minhash)
print(json.dumps({{"datasketch_s": time.process_time() - began, "datasketch_pairs": pairs}}))
"""


def child(mode: str, count: int, scratch: Path) -> dict[str, float]:
    """One measurement in a process of its own."""
    command = [sys.executable, __file__, "--only", mode, "--sizes", str(count), "--scratch", str(scratch)]
    return read(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def read(text: str) -> dict[str, float]:
    """Figures that a child printed."""
    return {str(key): float(value) for key, value in json.loads(text).items()}


def peer_python(scratch: Path) -> str:
    """A fresh interpreter that has datasketch."""
    venv.create(scratch / "peer", with_pip=True)
    python = str(scratch / "peer" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", "datasketch"], check=True)
    return python


def report(sizes: list[int], python: str | None, install: bool) -> dict[str, object]:
    """Every figure and ratio."""
    with tempfile.TemporaryDirectory(prefix="patchgym-dedup-") as folder:
        scratch = Path(folder)
        whole = [child("ours", size, scratch) for size in sizes]
        alone = child("search", sizes[-1], scratch)
        python = peer_python(scratch) if install else python
        if python is not None:
            (scratch / "peer.py").write_text(PEER)
            command = [python, str(scratch / "peer.py"), str(scratch / "sets")]
            alone |= read(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    first, last = whole[0], whole[-1]
    ratios = {
        "growth_of_time_by_growth_of_records": last["total_s"] / first["total_s"] * first["records"] / last["records"],
        "all_pairs_extrapolated_by_ours": alone["all_pairs_extrapolated_s"] / alone["ours_s"],
        "without_numpy_by_ours": alone["sample_without_numpy_s"] / alone["sample_ours_s"],
    }
    if "datasketch_s" in alone:
        ratios["datasketch_by_ours"] = alone["datasketch_s"] / alone["ours_s"]
    return {
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "deduplication": whole,
        "search": alone,
        "ratios": ratios,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", default="10000,30000,100000")
    parser.add_argument("--peer-python")
    parser.add_argument("--install-peer", action="store_true")
    parser.add_argument("--only", choices=["ours", "search"], help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    sizes = sorted(int(size) for size in given.sizes.split(","))
    if given.only == "ours":
        print(json.dumps(ours(sizes[0])))
    elif given.only == "search":
        print(json.dumps(search(sizes[0], given.scratch)))
    else:
        print(json.dumps(report(sizes, given.peer_python, given.install_peer), indent=1))


if __name__ == "__main__":
    main()
