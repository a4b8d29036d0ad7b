"""The instruction of a task: what people wrote of the problem where somebody did, without what gives the fix away; else
what the failing tests show."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol

from patchgym.content import ObjectStore
from patchgym.errors import DataError
from patchgym.records import Task
from patchgym.tasks.bugs.symptoms import Symptom, symptom_of
from patchgym.tasks.bugs.templates import from_diff, symptom_statement
from patchgym.tasks.gates.solution import answer_of
from patchgym.tasks.gates.statement import scrub, statement_leaks
from patchgym.tasks.proof.instruction import write_instruction
from patchgym.tasks.sources.candidates import Candidate, text_of

Wording = Literal["tests", "symptoms"]
"""How an instruction is worded where nobody wrote one: ``tests`` lists failing tests with what each of them says, short
enough for a small model; ``symptoms`` tells what goes wrong in sentences."""

_LEAST_WORDS = 6
_MOST_CHARS = 4000
_MOST_TESTS = 8


class TellsSymptoms(Protocol):
    """Whoever puts symptoms into words: a model."""

    async def statement(self, package: str, symptoms: Sequence[Symptom], secrets: Collection[str]) -> str:
        """What goes wrong in ``package``, without any of ``secrets``; empty where it could not be told."""
        ...


async def with_instruction(
    task: Task,
    candidate: Candidate,
    failures: Mapping[str, str],
    objects: ObjectStore,
    wording: Wording,
    teller: TellsSymptoms | None = None,
) -> Task:
    """``task`` with its instruction and a note of what that was made from. ``failures`` maps the visible failing tests
    to their tracebacks, the most telling first. ``teller`` is asked where nobody wrote what is wrong."""
    revision = candidate.revision
    written = _scrubbed(task, candidate.statement, objects)
    told = await _told(candidate, failures, task, teller) if teller is not None and not written else ""
    if written:
        origin = candidate.source.statement or "template"
    elif told:
        written, origin = told, "model"
    elif wording == "symptoms":
        written, origin = _described(candidate, failures, objects), "template"
    if written:
        text = f"{written}\n\n{_listed(task)}".strip()
    else:
        text, origin = write_instruction(revision.name, failures, revision.project.is_source), "failing_tests"
    source = task.source.model_copy(update={"statement": origin})
    return task.model_copy(update={"instruction": text, "source": source})


def _scrubbed(task: Task, statement: str, objects: ObjectStore) -> str:
    """A statement without what leaks; empty where too little is left to tell a problem."""
    if not statement.strip():
        return ""
    answer = answer_of(task, objects)
    left = scrub(statement, statement_leaks(statement, answer)).strip()
    if statement_leaks(left, answer) or len(left.split()) < _LEAST_WORDS:
        return ""
    return left if len(left) <= _MOST_CHARS else left[:_MOST_CHARS].rpartition("\n")[0].rstrip()


async def _told(candidate: Candidate, failures: Mapping[str, str], task: Task, teller: TellsSymptoms) -> str:
    symptoms = _symptoms(candidate, failures)
    lines = (line[1:].strip() for line in task.gold_patch.splitlines() if line[:1] in ("+", "-"))
    return await teller.statement(candidate.revision.name, symptoms, list(filter(None, lines))) if symptoms else ""


def _symptoms(candidate: Candidate, failures: Mapping[str, str]) -> list[Symptom]:
    """What the failing tests show, where they explain themselves."""
    named = {name.rpartition(":")[2].rpartition(".")[2] for name in candidate.functions}
    names = {*named, candidate.exercised.rpartition(".")[2]} - {""}
    is_source = candidate.revision.project.is_source
    found = (
        symptom_of(traceback, is_source, names=names, exercised=candidate.exercised) for traceback in failures.values()
    )
    return [symptom for symptom in found if symptom is not None]


def _described(candidate: Candidate, failures: Mapping[str, str], objects: ObjectStore) -> str:
    """The symptom in sentences; of a change that people made also what the functions that it touches are for. Empty
    where the failing tests do not explain themselves."""
    revision, symptoms = candidate.revision, _symptoms(candidate, failures)
    try:
        if candidate.source.kind == "synthetic":
            return symptom_statement(revision.name, symptoms, candidate.id)
        before, after = (_sources(candidate, tree, objects) for tree in (candidate.broken, candidate.healthy))
        return from_diff(revision.name, before, after, symptoms, candidate.id)
    except DataError:
        return ""


def _sources(candidate: Candidate, tree: str, objects: ObjectStore) -> dict[str, str]:
    """The sources of ``tree`` that the candidate changes."""
    entries = objects.entries(tree)
    changed = objects.changed_paths(candidate.broken, candidate.healthy)
    is_source = candidate.revision.project.is_source
    return {path: text_of(objects, entries[path]) for path in changed if path in entries and is_source(path)}


def _listed(task: Task) -> str:
    """The failing tests that the agent can see, by name."""
    tests = list(dict.fromkeys(test.partition("[")[0] for test in task.view().failing_tests))
    if not tests:
        return "Fix the source. Tests that you cannot see decide."
    lines = [f"- {test}" for test in tests[:_MOST_TESTS]]
    if len(tests) > _MOST_TESTS:
        lines.append(f"- and {len(tests) - _MOST_TESTS} more")
    return "\n".join(["These tests fail:", *lines, "Fix the source, not the tests."])
