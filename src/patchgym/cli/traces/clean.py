"""``patchgym traces clean``: a run without secrets, empty trajectories and unmarked duplicates."""

import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import JsonValue

from patchgym.cli.console import say, show_json, show_line, show_table, stage
from patchgym.errors import UsageError
from patchgym.records import RunManifest

if TYPE_CHECKING:
    from patchgym.traces.cleaning import Cleaning

_EXAMPLES = 10


@click.command()
@click.argument("path", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Where the cleaned run is written.")
@click.option("--known", type=click.Path(path_type=Path), metavar="FILE", help="Secrets to take out, one a line.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def command(path: Path, out: Path, known: Path | None, as_json: bool) -> None:
    """Write a cleaned copy of a run; the run itself is not changed.

    Empty trajectories are dropped. Failures are kept; time-outs are marked by whose they were, duplicates by what they
    repeat. Secrets and personal data are replaced by markers, and token ids that would give them back go. Exit code 1
    means that a trajectory could not be read and is left out, or that nothing is left.
    """
    done = _cleaned(path, out, _known(known))
    if as_json:
        show_json({"out": str(out), **_document(done)})
    else:
        _show(done, out)
    if done.problems or not done.kept:
        sys.exit(1)


def _known(path: Path | None) -> list[bytes]:
    if path is None:
        return []
    try:
        return [line for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise UsageError(
            f"The known secrets {path} cannot be read", why=str(error), mend="Give a file, one a line."
        ) from None


def _cleaned(path: Path, out: Path, known: list[bytes]) -> "Cleaning":
    from patchgym.store import RunDirectory
    from patchgym.store.whole import beside
    from patchgym.traces.cleaning import clean_run

    old = RunDirectory.read(path)
    # So that `score` and `diagnose` read the copy by the settings that its rewards were made with.
    rewards = {"reward": old.manifest.config["reward"]} if "reward" in old.manifest.config else {}
    with beside(out) as scratch, stage("Clean", total=len(old.ids)) as shown:
        manifest = RunManifest(
            id=out.name,
            command="traces clean",
            config={"run": old.manifest.id, "command": old.manifest.command, "known": len(known), **rewards},
            versions={**old.manifest.versions, "patchgym": version("patchgym")},
            task_hashes=old.manifest.task_hashes,
            seed=old.manifest.seed,
            created_at=datetime.now(UTC),
        )
        new = RunDirectory.open_for_writing(scratch / "run", manifest)
        try:
            done = clean_run(
                old, new, known, lambda so_far: shown.update(so_far.read, note=f"{so_far.redacted.total()} taken out")
            )
        finally:
            new.close()
        if done.kept:
            (scratch / "run").rename(out)
    return done


def _show(done: "Cleaning", out: Path) -> None:
    rows = [
        ("read", str(done.read)),
        ("dropped: empty", str(done.empty)),
        ("  of them lost to infrastructure", str(done.empty_by_infrastructure)),
        ("kept", str(done.kept)),
        ("  of them failures", str(done.failures)),
        ("  of them duplicates, marked", str(done.duplicates)),
        *((f"  of them timed out: {whose}", str(count)) for whose, count in sorted(done.timeouts.items())),
        ("with something taken out", str(done.trajectories_redacted)),
        ("steps whose token ids went", str(done.without_ids)),
    ]
    show_table("Trajectories", ("what", "count"), rows)
    if done.redacted:
        taken = [(kind.replace("_", " "), str(count)) for kind, count in done.redacted.most_common()]
        show_table("Taken out", ("what", "count"), taken)
    for problem in done.problems[:_EXAMPLES]:
        say(problem)
    if len(done.problems) > _EXAMPLES:
        say(f"... and {len(done.problems) - _EXAMPLES} more; --json lists them")
    if done.kept:
        show_line(f"\nWritten to {out}. Next: patchgym show {out}")
    else:
        show_line("\nNothing is left: nothing was written.")


def _document(done: "Cleaning") -> dict[str, JsonValue]:
    return {
        "read": done.read,
        "kept": done.kept,
        "empty": done.empty,
        "empty_by_infrastructure": done.empty_by_infrastructure,
        "failures": done.failures,
        "duplicates": done.duplicates,
        "timeouts": dict(done.timeouts),
        "trajectories_redacted": done.trajectories_redacted,
        "redacted": dict(done.redacted),
        "steps_without_ids": done.without_ids,
        "problems": list(done.problems),
    }
