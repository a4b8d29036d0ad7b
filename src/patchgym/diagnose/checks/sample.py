"""Step 1, one sample by itself: can its task be solved, verified and made again, and does it tell its answer?

Nothing later means anything where this is broken, so it comes first. Nothing is run here: what was proved when the
tasks were made, what the gold policy did, and what the record shows of the same patch graded twice.
"""

from collections import Counter

from patchgym.diagnose.facts import Facts
from patchgym.diagnose.rule import Rule, by_count, named_few
from patchgym.diagnose.seen import Seen
from patchgym.diagnose.settings import DiagnoseSettings
from patchgym.diagnose.variance import recorded_grading, unstable
from patchgym.records import Finding
from patchgym.records.outcome import proof_against


def reproducible(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """The same patch is always graded the same."""
    rule = Rule(1, "reproducible", "0 patches that are worth something else when they are graded again", "article")
    gradings = [made for one in facts.own if (made := recorded_grading(one.light)) is not None]
    repeats = len(gradings) - len({(one.task_id, one.patch) for one in gradings})
    apart = [group for group in unstable(gradings) if len({one.value for one in group}) > 1]
    proved = [task for task in facts.tasks.values() if task.validation is not None]
    uneven = [task.id for task in proved if task.validation is not None and not task.validation.proved]
    if apart:
        first = apart[0]
        gates = ", ".join(f"{count} x {gate}" for gate, count in Counter(one.gate for one in first).items())
        names = sorted({name for one in first for name in one.tests})
        differing = [name for name in names if len({one.tests.get(name) for one in first}) > 1]
        told = f"; the test {differing[0]} differs" if differing else ""
        return rule.broken(
            f"{len(apart)} of {len(apart) + repeats} patches that were graded again came out otherwise: the patch of "
            f"{first[0].trajectory}: {gates}{told}",
            f"{first[0].task_id} is not stable: patchgym validate TASKSET, and leave out what is flaky.",
            [group[0].task_id for group in apart],
            {"patches": len(apart), "repeats": repeats},
        )
    if uneven:
        return rule.broken(
            f"the proof of {len(uneven)} of {len(proved)} tasks did not come out the same in every run: "
            f"{named_few(uneven)}",
            "Leave them out, or prove them again: patchgym validate TASKSET.",
            uneven,
            {"tasks": len(uneven)},
        )
    runs = sum(task.validation.runs for task in proved if task.validation is not None)
    if not repeats and not proved:
        return rule.unknown(
            "no patch was graded twice, and the run keeps no proof of its tasks",
            "Grade some again: patchgym diagnose RUN --regrade 20",
        )
    told = f"{repeats} patches were graded again, each the same"
    return rule.ok(
        f"{told}; {len(proved)} tasks were proved in {runs} runs" if proved else told,
        {"repeats": repeats},
        confidence=by_count(repeats + runs),
    )


def solvable(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """A test decides, and the known solution passes through the agent's own tools."""
    rule = Rule(1, "solvable", "every task: its own solution passes, and a test decides", "article")
    shown = [one for one in facts.demonstrations if one.solved is not None]
    failed = [one for one in shown if not one.solved]
    untested = [task.id for task in facts.tasks.values() if not task.tests.fail_to_pass]
    if untested:
        return rule.broken(
            f"no test decides {len(untested)} of {len(facts.tasks)} tasks: {named_few(untested)}",
            "Leave them out: patchgym tasks audit TASKSET --clean SET2.",
            untested,
        )
    if failed:
        one = failed[0]
        stop = (one.light.stop or "unknown").replace("_", " ")
        return rule.broken(
            f"the solution of {len(failed)} of {len(shown)} tasks did not pass through the agent's tools; "
            f"{one.id}: {_why(one)} (stopped: {stop})",
            "Prove the tasks again (patchgym validate TASKSET); if they pass there, the limits of turns and time are "
            "too tight.",
            [one.light.task_id for one in failed],
            {"failed": len(failed), "shown": len(shown)},
        )
    proved = sum(task.validation is not None and task.validation.proved for task in facts.tasks.values())
    if not shown and not proved:
        return rule.unknown(
            "the run keeps no proof of its tasks and no gold demonstration",
            "patchgym rollout TASKSET --policy gold --out GOLD, or patchgym validate TASKSET",
        )
    demonstrated = f"{len(shown)} gold demonstrations solved their task; " if shown else ""
    return rule.ok(
        f"{demonstrated}{proved} of {len(facts.tasks)} tasks carry a proof",
        {"shown": len(shown), "proved": proved},
    )


def _why(one: Seen) -> str:
    """Why a demonstration did not solve its task: what stands against it, or what its grading says."""
    proof, report = proof_against(one.light), one.light.report
    if proof is not None:
        return f"{proof.kind} at {proof.where}: {proof.why}"
    return report.why or report.verdict if report is not None else ""


def leaks(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """No statement tells the answer, and no hidden test can be read."""
    rule = Rule(1, "leaks", "0 tasks whose statement tells the answer or whose hidden tests can be read", "article")
    if not facts.tasks:
        return rule.unknown("the run does not keep its tasks", "patchgym tasks audit TASKSET")
    found = facts.about.leaks
    if not found:
        return rule.ok(f"nothing found in the statements and workspaces of {len(facts.tasks)} tasks")
    tasks = list(dict.fromkeys(one.task for one in found))
    first = found[0]
    return rule.broken(
        f"{len(tasks)} of {len(facts.tasks)} tasks; {first.task}: {first.check}/{first.kind} at {first.where}: "
        f"{first.evidence}",
        f"{first.mend} All of them: patchgym tasks audit TASKSET --clean SET2",
        tasks,
        {"tasks": len(tasks)},
    )


def split(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """No task stands on both sides, and no training task is a version of a held-out one."""
    rule = Rule(1, "split", "0 pairs that share a patch, a function or a commit", "article")
    train = {task.id for task in facts.tasks.values() if task.split == "train"}
    heldout = {task.id for task in facts.tasks.values() if task.split == "heldout"}
    if facts.command == "loop":
        train |= {one.light.task_id for one in facts.attempts if not one.light.phase.startswith("eval")}
        heldout |= {one.light.task_id for members in facts.measured.values() for one in members}
    about = facts.about
    if facts.against is not None:
        other = facts.against.tasks
        heldout |= {task.id for task in other.values() if task.split == "heldout"}
        about = about.with_more(facts.against.about)
    both = sorted(train & heldout)
    mend = "Split again: patchgym tasks split TASKSET --out SET2. It keeps what belongs together on one side."
    if both:
        return rule.broken(f"{len(both)} tasks were trained on and measured: {named_few(both)}", mend, both)
    if not train or not heldout:
        side = "held-out tasks" if train else "training tasks"
        return rule.unknown(
            f"the run keeps no {side}", "Name the evaluation: patchgym diagnose RUN --against EVALUATION"
        )
    pairs = about.overlap(frozenset(train), frozenset(heldout))
    if pairs:
        one, other_task, why = pairs[0]
        return rule.broken(
            f"{len(pairs)} pairs of a training and a held-out task: {one} and {other_task} ({why})",
            mend,
            [name for pair in pairs for name in pair[:2]],
            {"pairs": len(pairs)},
        )
    return rule.ok(f"{len(train)} training and {len(heldout)} held-out tasks share nothing")
