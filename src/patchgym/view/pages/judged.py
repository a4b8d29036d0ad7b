"""What was concluded: the checklists of a run, the funnel and audit of its tasks, and the blind spot check."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from patchgym.errors import UsageError
from patchgym.records import Trajectory
from patchgym.view.checklist import kept_checklists, read_checklist
from patchgym.view.diffs import patch_files
from patchgym.view.opened import OpenedRun
from patchgym.view.query import Query
from patchgym.view.site import Given, Site, SpotCheck
from patchgym.view.text import cut
from patchgym.view.treedrawing import asked_for

_SAID, _SHOWN = 4_000, 3_000
_BLIND_STEPS = 200


class Proof(NamedTuple):
    """How the tasks of a run are proved."""

    tasks: int
    proved: int
    flaky: int
    """Tests that were thrown out because they did not agree."""
    killed: int
    planted: int
    """Bugs that were planted in solutions, and how many of them the tests noticed."""
    sandboxes: Sequence[str]


class BlindStep(NamedTuple):
    """A step without anything that tells a verdict."""

    said: str
    action: str
    shown: str


def checklist_page(site: Site, run: OpenedRun, query: Query) -> tuple[str, dict[str, object]]:
    """The kept checklists, and one made now where that is asked for."""
    now = None
    if query.text("now") and site.extras.checks is not None:
        now = read_checklist(site.extras.checks(run.path), "Now")
    with run.index.open() as connection:
        known = {row[0] for row in connection.execute("SELECT id FROM attempts")}
    return "checklist.html", {
        "lists": [*([now] if now is not None else []), *reversed(kept_checklists(run.files))],
        "can_check": site.extras.checks is not None,
        "attempts": known,
    }


def data_page(site: Site, run: OpenedRun, query: Query) -> tuple[str, dict[str, object]]:
    """Where the tasks come from and how far they are proved."""
    report = run.files.document("report.json") or {}
    return "data.html", {
        "funnel": _counts(report.get("funnel")),
        "dropped": _counts(report.get("dropped")),
        "sides": _counts(report.get("tasks")),
        "sources": _sources(run),
        "proof": _proof(run),
        "sets": site.extras.sets,
        "tasks": list(run.tasks.values())[:500],
    }


def _counts(value: JsonValue) -> list[tuple[str, int]]:
    return [(name, count) for name, count in value.items() if isinstance(count, int)] if isinstance(value, dict) else []


def _sources(run: OpenedRun) -> list[tuple[str, str, str, int]]:
    found: dict[tuple[str, str, str], int] = {}
    for task in run.tasks.values():
        name = f"{task.source.repo} {task.source.version or ''}".rstrip()
        key = (name, task.source.kind, task.source.license or "not known")
        found[key] = found.get(key, 0) + 1
    return [(*key, count) for key, count in sorted(found.items())]


def _proof(run: OpenedRun) -> Proof | None:
    tasks = list(run.tasks.values())
    proofs = [task.validation for task in tasks if task.validation is not None]
    mutants = [proof.mutants for proof in proofs if proof.mutants is not None]
    if not tasks:
        return None
    return Proof(
        tasks=len(tasks),
        proved=sum(proof.proved for proof in proofs),
        flaky=sum(len(proof.flaky) for proof in proofs),
        killed=sum(score.killed for score in mutants),
        planted=sum(score.killed + score.survived for score in mutants),
        sandboxes=sorted({proof.sandbox for proof in proofs if proof.sandbox}),
    )


def spotcheck_page(site: Site, run: OpenedRun, query: Query) -> tuple[str, dict[str, object]]:
    """One item of the spot check, or, once all are answered, how far reward and person agree."""
    check = opened_check(site, run, query)
    seed = query.number("seed", 0)
    items, given = check.items, check.given()
    at = query.optional("item")
    if at is None:
        at = next((place for place, (item, _) in enumerate(items) if item not in given), len(items))
    if not 0 <= at < len(items) or query.text("result"):
        return "spotcheck_done.html", {
            "seed": seed,
            "done": len(given),
            "total": len(items),
            "outcome": check.outcome() if given else [],
            "open": next((place for place, (item, _) in enumerate(items) if item not in given), None),
        }
    item, name = items[at]
    return "spotcheck.html", {
        "seed": seed,
        "at": at,
        "item": item,
        "total": len(items),
        **blind(run, name, given, item),
    }


def opened_check(site: Site, run: OpenedRun, query: Query) -> SpotCheck:
    """The spot check of a seed.

    Raises:
        UsageError: it is not offered here.
        DataError: there is nothing to compare.
    """
    if site.extras.spotcheck is None:
        raise UsageError("No spot check is offered here", mend=f"Run patchgym spotcheck {run.path}")
    return site.extras.spotcheck(run, query.number("seed", 0))


def blind(run: OpenedRun, name: str, given: Mapping[str, Given], item: str) -> dict[str, object]:
    """An attempt without its reward, its verdict, its report and its name."""
    one: Trajectory = run.trajectory(name)
    task = run.tasks.get(one.task_id)
    steps = [
        BlindStep(
            said=cut(step.message.content, _SAID).text if not step.continues else "",
            action=asked_for(step),
            shown=cut(step.observation.shown, _SHOWN).text if step.observation is not None else "",
        )
        for step in one.steps[:_BLIND_STEPS]
    ]
    return {
        "instruction": task.instruction if task is not None else "",
        "steps": steps,
        "more": max(0, len(one.steps) - _BLIND_STEPS),
        "patch": patch_files(one.final_patch) if one.final_patch else None,
        "answer": given.get(item),
        "answered": len(given),
    }
