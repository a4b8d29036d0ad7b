"""Every gate over a task set: what is wrong with which task, and what to do.

A check is a function from one task, or from a whole set, to findings. ``TASK_CHECKS`` and ``SET_CHECKS`` list them; one
more is one more function in its tuple. The attack on the workspace is not among them: it takes a sandbox, and so runs
beside them where one is given.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

from patchgym.content import ObjectStore, apply_patch, patched_paths
from patchgym.errors import DataError, EnvironmentBuildError, PatchError, SandboxError
from patchgym.grading import GRADER_VERSION, is_protected
from patchgym.records import Environment, Record, Task
from patchgym.sandbox import SandboxFactory
from patchgym.tasks.flakes import Flake
from patchgym.tasks.gates.attack.secrets import normal
from patchgym.tasks.gates.description import describe
from patchgym.tasks.gates.findings import Finding, one_line
from patchgym.tasks.gates.licences import licence_of_tree, licence_problem
from patchgym.tasks.gates.priority import priority_of, shortfalls
from patchgym.tasks.gates.settings import GateSettings
from patchgym.tasks.gates.solution import answer_of, hidden_blocks
from patchgym.tasks.gates.spdx import licences_in
from patchgym.tasks.gates.statement import Answer, statement_leaks
from patchgym.tasks.gates.workspace import Bounds, attack_workspace
from patchgym.tasks.overlap.fingerprints import fingerprint_tasks
from patchgym.tasks.overlap.pairs import find_overlap
from patchgym.testrun import built_environment

Progress = Callable[[int, int], None]
"""Called with how many tasks are done and how many there are."""
_LEAST_WORDS = 4
_SURE = 0.8  # of a licence that the files speak of
_UNSEARCHED = frozenset({"unsearched", "no_sandbox", "no_environment"})
_RESAY = "Say the symptom instead, or run scrub() over the statement."


@dataclass(frozen=True)
class Subject:
    """One task under audit, with what several checks need of it."""

    task: Task
    objects: ObjectStore
    settings: GateSettings = field(default_factory=GateSettings)
    flakes: tuple[Flake, ...] = ()

    @cached_property
    def answer(self) -> Answer:
        """The solution, taken apart."""
        return answer_of(self.task, self.objects)

    def finding(self, check: str, kind: str, evidence: str, mend: str, where: str = "") -> Finding:
        """A finding against this task, its foreign text made fit to be shown."""
        return Finding(
            task=self.task.id, check=check, kind=kind, where=one_line(where), evidence=one_line(evidence), mend=mend
        )


class AuditReport(Record):
    """``findings`` in the order of the tasks, those of the whole set last; ``attacked`` counts the workspaces that were
    searched to their end."""

    tasks: int
    attacked: int
    findings: tuple[Finding, ...]

    def counts(self) -> dict[str, int]:
        """How many findings of each check and kind, as ``check/kind``, the most frequent first."""
        counted = Counter(f"{one.check}/{one.kind}" for one in self.findings)
        return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))


TaskCheck = Callable[[Subject], Iterable[Finding]]
SetCheck = Callable[[Sequence[Task], ObjectStore], Iterable[Finding]]


def check_statement(subject: Subject) -> Iterator[Finding]:
    """The instruction, and the names of the failing tests that are shown, give nothing away."""
    for leak in statement_leaks(subject.task.instruction, subject.answer):
        told = f"{leak.words!r}: {leak.why}"
        if leak.matches not in leak.words:
            told += f" Matches: {leak.matches!r}"
        inside = leak.end > leak.start
        where = f"instruction, characters {leak.start}-{leak.end}" if inside else "failing tests"
        yield subject.finding("statement", leak.kind, told, _RESAY if inside else "Hide that test.", where)


def check_description(subject: Subject) -> Iterator[Finding]:
    """The instruction says what is wrong, and where."""
    told = describe(subject.task)
    mend = "Name the module or the failing test, and what it does wrong."
    if told.words < _LEAST_WORDS:
        yield subject.finding("description", "empty", subject.task.instruction or "(empty)", mend, "instruction")
    elif told.vague or not (told.place or told.symptom):
        yield subject.finding("description", "vague", subject.task.instruction, mend, "instruction")


def check_proof(subject: Subject) -> Iterator[Finding]:
    """It was proved that nothing done fails and the gold patch passes, and a test decides."""
    task, proof = subject.task, subject.task.validation
    if not task.tests.fail_to_pass:
        yield subject.finding("proof", "no_tests", "No test has to pass.", "Give the task fail-to-pass tests.")
    if proof is None:
        yield subject.finding("proof", "missing", "There is no validation.", "Build the set again.")
    elif not proof.proved:
        failed = f"base failed {proof.base_failed}, noop {proof.noop_failed}"
        said = f"of {proof.runs} runs, {failed}, gold passed {proof.gold_passed}"
        yield subject.finding("proof", "not_proved", said, "Run patchgym validate, and drop the task if it stays so.")
    strange = sorted(set(task.tests.hidden) - set(task.tests.fail_to_pass))
    if strange:
        mend = "Hide only tests that decide."
        yield subject.finding("proof", "hidden_decides_nothing", strange[0], mend, "tests.hidden")


def check_gold(subject: Subject) -> Iterator[Finding]:
    """The gold patch applies, changes something, and leaves the tests alone; the key files are there."""
    task = subject.task
    try:
        touched = patched_paths(task.gold_patch)
        apply_patch(subject.objects, task.workspace, task.gold_patch)
    except PatchError as error:
        yield subject.finding("gold", "does_not_apply", str(error), "Make the task again.", "gold_patch")
        return
    if not touched:
        yield subject.finding("gold", "empty", "The gold patch changes nothing.", "Make the task again.", "gold_patch")
    for path in touched:
        if is_protected(path, task.tests) or _is_test(path):
            mend = "Grading ignores what a patch does there: leave it out of the gold patch."
            yield subject.finding("gold", "touches_tests", path, mend, "gold_patch")
    there = set(subject.objects.entries(task.workspace)) | set(touched)
    for path in [path for path in task.key_files if path not in there] or ([] if task.key_files else [""]):
        mend = "List the files that the gold patch changes."
        yield subject.finding("gold", "key_file_missing", path or "No key file is named.", mend, "key_files")


def check_hidden(subject: Subject) -> Iterator[Finding]:
    """No hidden test stands in the workspace's texts. The attack looks further: archives, history, environment."""
    texts = {path: f"\n{normal(text)}\n" for path, text in subject.answer.workspace.items()}
    for name, block in hidden_blocks(subject.task, subject.answer):
        for path, text in sorted(texts.items()):
            if f"\n{block}\n" in text:
                mend = "Take the test out of everything that the agent can read, or do not count it as hidden."
                yield subject.finding("hidden", "readable", f"the hidden test {name}", mend, path)


def check_licence(subject: Subject) -> Iterator[Finding]:
    """The sources' licence is known and on the list."""
    task, settings = subject.task, subject.settings.licences
    if subject.settings.any_license:
        return
    found = licence_of_tree(subject.objects, task.workspace)
    stated = task.source.license
    problem = licence_problem(stated or found.expression, 1.0 if stated else found.confidence, settings)
    mend = "Leave the task out, state its licence, or add the licence to tasks.gates.licences.allowed."
    if problem:
        kind = "unknown" if stated is None and found.expression is None else "not_allowed"
        yield subject.finding("licence", kind, problem, mend, "source.license")
    elif stated is not None and found.expression is not None and found.confidence >= _SURE:
        told = f"stated as {stated}, but the files say {found.expression} ({found.evidence[0].path})"
        if licences_in(stated).isdisjoint(licences_in(found.expression)):
            yield subject.finding("licence", "differs", told, mend, "source.license")


def check_ledger(subject: Subject) -> Iterator[Finding]:
    """No two gradings of one patch were seen to disagree, by the grader of today."""
    for flake in subject.flakes:
        if flake.grader_version == GRADER_VERSION:
            told = f"graded on {flake.at:%Y-%m-%d}: {' '.join(flake.seen)}"
            mend = "Leave the task out: a flaky test rewards luck."
            yield subject.finding("ledger", "flaky", told, mend, flake.test or "verdict")


def check_priority(subject: Subject) -> Iterator[Finding]:
    """The priority score reaches the thresholds (by default there are none)."""
    settings = subject.settings.priority
    for reason in shortfalls(priority_of(subject.task, settings), settings):
        yield subject.finding("priority", "below_threshold", reason, "Leave the task out, or lower the threshold.")


def check_duplicates(tasks: Sequence[Task], objects: ObjectStore) -> Iterator[Finding]:
    """No two tasks of the set have nearly the same solution."""
    for pair in find_overlap(fingerprint_tasks(tasks, objects)).duplicates:
        first, second = tasks[pair.first], tasks[pair.second]
        yield Finding(
            task=second.id,
            check="duplicates",
            kind=pair.why.replace(" ", "_"),
            where="gold_patch",
            evidence=one_line(f"{pair.similarity:.0%} like {first.id}"),
            mend="Keep one of the two.",
        )


TASK_CHECKS: tuple[TaskCheck, ...] = (
    check_statement,
    check_description,
    check_proof,
    check_gold,
    check_hidden,
    check_licence,
    check_ledger,
    check_priority,
)
"""Checks of one task."""
SET_CHECKS: tuple[SetCheck, ...] = (check_duplicates,)
"""Checks of a whole set."""


@dataclass(frozen=True)
class Attacker:
    """What the attack on workspaces needs: sandboxes over the audit's own store, how to get an environment's directory
    (blocking; called in a thread), and how many to run at once."""

    factory: SandboxFactory
    build: Callable[[Environment], Path]
    concurrency: int = 2
    bounds: Bounds = field(default_factory=Bounds)


async def audit(
    tasks: Sequence[Task],
    objects: ObjectStore,
    settings: GateSettings,
    attacker: Attacker | None = None,
    *,
    flakes: Sequence[Flake] = (),
    task_checks: Sequence[TaskCheck] = TASK_CHECKS,
    set_checks: Sequence[SetCheck] = SET_CHECKS,
    on_progress: Progress = lambda done, total: None,
) -> AuditReport:
    """Run every check over ``tasks``, whose objects are in ``objects`` (patched trees are added to it), and, with an
    ``attacker``, the attack on each workspace; ``flakes`` is the ledger of the set. A task that cannot be checked is a
    finding, not an error.

    Raises:
        PrerequisiteError: this machine cannot make sandboxes or environments.
        StorageError: the disk is full.
    """
    done = 0
    slots = asyncio.Semaphore(attacker.concurrency if attacker is not None else 1)

    async def one(task: Task) -> list[Finding]:
        nonlocal done
        async with slots:
            noted = tuple(flake for flake in flakes if flake.task_id == task.id)
            found = await asyncio.to_thread(_checked, Subject(task, objects, settings, noted), task_checks)
            if attacker is not None:
                found += await _attacked(task, objects, attacker)
        done += 1
        on_progress(done, len(tasks))
        return found

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(one(task)) for task in tasks]
    by_task = {task.id: work.result() for task, work in zip(tasks, running, strict=True)}
    of_set = [finding for check in set_checks for finding in check(tasks, objects)]
    failed = sum(any(one.check == "workspace" and one.kind in _UNSEARCHED for one in each) for each in by_task.values())
    return AuditReport(
        tasks=len(tasks),
        attacked=len(tasks) - failed if attacker is not None else 0,
        findings=(*(finding for found in by_task.values() for finding in found), *of_set),
    )


def _checked(subject: Subject, checks: Sequence[TaskCheck]) -> list[Finding]:
    found: list[Finding] = []
    for check in checks:
        name = check.__name__.removeprefix("check_")
        try:
            found += check(subject)
        except (PatchError, DataError) as error:
            found.append(subject.finding(name, "not_checked", str(error), "Make the task again."))
    return found


async def _attacked(task: Task, objects: ObjectStore, attacker: Attacker) -> list[Finding]:
    subject = Subject(task, objects)
    if task.environment.contained and attacker.factory.kind != "docker":
        told = "Its container cannot be searched by sandboxes of the kind " + attacker.factory.kind + "."
        return [subject.finding("workspace", "no_sandbox", told, "Audit it with --sandbox docker.")]
    try:
        built = await built_environment(task.environment, attacker.build)
        return list(await attack_workspace(task, objects, attacker.factory, built, attacker.bounds))
    except EnvironmentBuildError as error:
        return [subject.finding("workspace", "no_environment", str(error), "Lock the environment again.")]
    except (SandboxError, PatchError, DataError) as error:
        return [subject.finding("workspace", "no_sandbox", str(error), "Run it again.")]


def _is_test(path: str) -> bool:
    """Whether a path is a test file by name."""
    name = PurePosixPath(path).name
    return name == "conftest.py" or (name.startswith("test_") and name.endswith(".py")) or name.endswith("_test.py")


def findings_by_task(report: AuditReport) -> Mapping[str, tuple[Finding, ...]]:
    """The findings of each task that has any; under the empty id those of the whole set."""
    found: dict[str, list[Finding]] = {}
    for finding in report.findings:
        found.setdefault(finding.task, []).append(finding)
    return {task: tuple(findings) for task, findings in found.items()}
