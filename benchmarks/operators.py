"""How often the bugs of each operator are noticed: the figures of ``operators.toml``, measured anew.

Bugs are planted one at a time on covered lines of real packages, up to ``--each`` of an operator and package, drawn by
chance, and all tests that run the line are run. Prints TOML:

    kill    of those with at least two test functions on the line, the share that fails at least two of them
    subtle  of the tests that run the line, the share that passes all the same, over the bugs that any test notices

Both are drawn towards the mean of all operators as if by three bugs more, so that rare operators are not taken at their
word.

    python benchmarks/operators.py [--each 12] [--seed 1] [NAME==V ...]
"""

import argparse
import asyncio
import os
import random
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from patchgym.content import Entry, ObjectStore
from patchgym.sandbox import NamespaceSandboxes
from patchgym.sandbox.environments import build_environment
from patchgym.tasks.bugs.mutation import Mutation, makes_bug, plant, proposals
from patchgym.tasks.bugs.operators import OPERATORS, REMOVAL
from patchgym.tasks.proof.bench import Bench, together
from patchgym.tasks.proof.healthy import Healthy
from patchgym.tasks.sources.candidates import text_of
from patchgym.tasks.sources.packages import Catalog
from patchgym.tasks.sources.project import Revision
from patchgym.testrun import function_of

PACKAGES = (
    *("cachetools==8.0.2", "parse==1.22.4", "schema==0.7.8", "simpleeval==1.0.8"),
    *("toolz==1.2.0", "uritemplate==4.2.0", "webcolors==25.10.0", "xmltodict==1.0.4"),
)
PRIOR = 3
SECONDS = 30.0


@dataclass(frozen=True)
class Bug:
    """One planted bug, and the tests that run its lines."""

    path: str
    found: Mutation
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of it: whether at least two test functions failed, and the share of its tests that passed (None
    where all did)."""

    operator: str
    killed: bool
    quiet: float | None


def names_of(tests: frozenset[str]) -> set[str]:
    """The bare names of the test functions that tests belong to."""
    return {function_of(test)[1].rpartition(".")[2] for test in tests}


def drawn(revision: Revision, objects: ObjectStore, healthy: Healthy, each: int, seed: int) -> list[Bug]:
    """Bugs of every operator on covered lines, up to ``each`` of one."""
    found: dict[str, list[Bug]] = defaultdict(list)
    assert healthy.coverage is not None
    for path, entry in sorted(objects.entries(revision.tree).items()):
        if revision.project.is_source(path):
            source = text_of(objects, entry)
            for mutation in (*proposals(source), *proposals(source, [REMOVAL.name])):
                tests = healthy.coverage.tests(path, mutation.lines) & healthy.passed
                if len(names_of(tests)) >= 2:
                    found[mutation.operator].append(Bug(path, mutation, tuple(sorted(tests))))
    chance = random.Random(seed)
    kept: list[Bug] = []
    for operator in sorted(found):
        chance.shuffle(found[operator])
        bugs = [bug for bug in found[operator] if _is_bug(revision, objects, bug)]
        kept += bugs[:each]
    return kept


def _is_bug(revision: Revision, objects: ObjectStore, bug: Bug) -> bool:
    return makes_bug(objects.get(objects.entries(revision.tree)[bug.path].id), bug.found)


async def outcome(bench: Bench, revision: Revision, bug: Bug, patience: float) -> Outcome:
    """Plant a bug and run its tests. One that keeps them from their end counts as not noticed: it makes no task."""
    objects = bench.objects
    entry = objects.entries(revision.tree)[bug.path]
    planted = objects.put(plant(text_of(objects, entry), bug.found).encode())
    tree = objects.update_tree(revision.tree, {bug.path: Entry(entry.mode, planted)})
    run = await bench.run(tree, revision.environment, bug.tests, timeout_s=patience, base=revision.tree)
    if not run.complete:
        return Outcome(bug.found.operator, killed=False, quiet=None)
    failed = frozenset(test for test, found in run.outcomes.items() if found.failing)
    quiet = 1 - len(failed) / len(bug.tests) if failed else None
    return Outcome(bug.found.operator, killed=len(names_of(failed)) >= 2, quiet=quiet)


async def measure(packages: list[str], each: int, seed: int, folder: Path) -> list[Outcome]:
    """All outcomes over all packages."""
    objects = ObjectStore(folder / "objects")
    factory = NamespaceSandboxes(objects)
    bench = Bench(factory, objects, build_environment, len(os.sched_getaffinity(0)))
    catalog, found = Catalog(), []
    for requirement in packages:
        await asyncio.to_thread(catalog.fetch, requirement)
        revision = catalog.load(requirement, objects)
        healthy = await bench.healthy(revision.tree, revision.environment, revision.project.is_test, 2)
        bugs = await asyncio.to_thread(drawn, revision, objects, healthy, each, seed)
        patience = healthy.patience(SECONDS)
        found += await together(outcome(bench, revision, bug, patience) for bug in bugs)
    factory.close()
    return found


def table(found: list[Outcome]) -> str:
    """The figures as TOML."""
    quiet = [one.quiet for one in found if one.quiet is not None]
    mean_kill = sum(one.killed for one in found) / max(1, len(found))
    mean_quiet = sum(quiet) / max(1, len(quiet))
    lines = [f"# {len(found)} bugs; of all {mean_kill:.2f} killed, {mean_quiet:.2f} subtle"]
    for name in (*sorted(OPERATORS), REMOVAL.name):
        mine = [one for one in found if one.operator == name]
        heard = [one.quiet for one in mine if one.quiet is not None]
        kill = (sum(one.killed for one in mine) + PRIOR * mean_kill) / (len(mine) + PRIOR)
        subtle = (sum(heard) + PRIOR * mean_quiet) / (len(heard) + PRIOR)
        lines += [f"[{name}]", f"kill = {kill:.2f}", f"subtle = {subtle:.2f}  # of {len(mine)}"]
    return "\n".join(lines)


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", default=list(PACKAGES))
    parser.add_argument("--each", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        print(table(asyncio.run(measure(options.packages, options.each, options.seed, Path(folder)))))


if __name__ == "__main__":
    main()
