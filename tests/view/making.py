"""Small real run directories to look at, and a client that looks."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from starlette.testclient import TestClient

from patchgym.content import Entry, ObjectStore, diff_trees
from patchgym.records import (
    Action,
    Evidence,
    Leaf,
    Message,
    Observation,
    Outcome,
    PolicyRef,
    Reward,
    Step,
    StepTokens,
    StopReason,
    Stream,
    Task,
    Term,
    Timing,
    Trajectory,
    Tree,
    TreeNode,
    Verdict,
)
from patchgym.store import RunDirectory
from patchgym.view.app import make_app
from patchgym.view.opened import open_runs
from patchgym.view.site import Extras, Site
from tests.records_for_tests import EMPTY_TREE, THEN, make_manifest, make_report, make_step, make_task, make_trajectory

TOKEN = "a-token-of-the-tests"
HOSTILE = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>\"'>&amp;"
    "</pre></td></table>\u202egnp.exe\u2066\u200b\x1b[31mred\x1b[0m\x00\x07\ufeff{{ 7 * 7 }}{% raw %}"
)
"""Markup, attributes, templates, escapes, marks that turn the line around."""


def write_run(
    path: Path,
    trajectories: Iterable[Trajectory],
    tasks: Sequence[Task] = (),
    trees: Iterable[Tree] = (),
    **manifest: object,
) -> Path:
    """A finished run at ``path``."""
    run = RunDirectory.open_for_writing(path, make_manifest(**manifest))
    if tasks:
        run.keep_tasks(tasks)
    for trajectory in trajectories:
        run.append(trajectory)
    for tree in trees:
        run.append_tree(tree)
    run.close()
    return path


def graded(sample: int, *, solved: bool = False, task_id: str = "demo-1", phase: str = "round-1") -> Trajectory:
    """A graded attempt of two steps."""
    report = make_report(Verdict.RESOLVED if solved else Verdict.UNRESOLVED, fixed=(2 if solved else 0, 2))
    return make_trajectory(
        sample,
        task_id=task_id,
        phase=phase,
        steps=[make_step(0), make_step(1)],
        report=report,
        reward=1.0 if solved else 0.0,
        patch="diff --git a/src.py b/src.py\n--- a/src.py\n+++ b/src.py\n@@ -1 +1 @@\n-a\n+b\n",
    )


def loop_run(path: Path) -> Path:
    """Rounds and evaluations of two tasks, the second of which is held out."""
    tasks = [make_task("demo-1"), make_task("demo-2").model_copy(update={"split": "heldout"})]
    attempts = [graded(n, solved=n < k, phase=f"round-{k}") for k in (1, 2, 3) for n in range(4)]
    attempts += [graded(0, solved=k == 2, task_id="demo-2", phase=f"eval-{k}") for k in (1, 2)]
    return write_run(path, attempts, tasks, command="loop")


def states_run(path: Path) -> Path:
    """One attempt that edits a file in a workspace of two, with its states, tokens, evidence and terms."""
    write_run(path, [])
    objects = ObjectStore(path / "objects")
    before = objects.write_tree(
        {name: Entry(0o100644, objects.put(text)) for name, text in (("a.py", b"x = 1\n"), ("dir/b.bin", b"\0\1"))}
    )
    after = objects.update_tree(before, {"a.py": Entry(0o100644, objects.put(b"x = 2\n"))})
    log = objects.put(b"first line\n" * 20_000)
    first = make_step(0).model_copy(update={"state_before": before, "state_after": before})
    edit = make_step(1).model_copy(
        update={
            "action": Action(tool="edit_file", arguments={"path": "a.py", "new": "x = 2"}),
            "state_before": before,
            "state_after": after,
            "changed_paths": ("a.py",),
            "observation": Observation(
                shown="done",
                ok=True,
                exit_code=0,
                stdout=Stream(text="first line", size=220_000, blob=log, cut=False),
                stderr=Stream(text="a warning", size=9),
                seconds=1.5,
            ),
            "tokens": StepTokens(
                prompt_ids=(1, 2), sampled_ids=(11, 12, 13), logprobs=(-0.001, -0.3, -5.0), mask=(1, 1, 0)
            ),
        }
    )
    evidence = Evidence(kind="conftest", where="conftest.py:1", quote="import os", why="it decides tests", proof=True)
    terms = {"outcome": Term(raw=1.0, weight=1.0, value=1.0, why="all tests pass", layer="outcome")}
    attempt = make_trajectory(
        0, steps=[first, edit], report=make_report(Verdict.RESOLVED), patch=diff_trees(objects, before, after)
    ).model_copy(
        update={"final_state": after, "reward": Reward(value=1.0, gate="solved", terms=terms, evidence=(evidence,))}
    )
    return write_run(path, [attempt, graded(1)], [make_task().model_copy(update={"workspace": before})])


def hostile_run(path: Path) -> Path:
    """A run in which every text that an agent, a task or a log can write is hostile."""
    observation = Observation(
        shown=HOSTILE, ok=False, exit_code=1, stdout=Stream(text=HOSTILE, size=len(HOSTILE)), ending=HOSTILE
    )
    step = make_step(0).model_copy(
        update={
            "prompt": (Message(role="user", content=HOSTILE),),
            "message": Message(role="assistant", content=HOSTILE, reasoning=HOSTILE),
            "action": Action(tool=HOSTILE, arguments={HOSTILE: HOSTILE}),
            "observation": observation,
            "changed_paths": (HOSTILE,),
            "policy_version": HOSTILE,
        }
    )
    unread = make_step(1, readable=False).model_copy(update={"parse_error": HOSTILE})
    evidence = Evidence(kind=HOSTILE, where=HOSTILE, quote=HOSTILE, why=HOSTILE)
    report = make_report().model_copy(
        update={"why": HOSTILE, "log": HOSTILE, "tests": {HOSTILE: Outcome.FAILED}, "evidence": (evidence,)}
    )
    terms = {HOSTILE: Term(raw=0.0, weight=1.0, value=0.0, why=HOSTILE)}
    attempt = make_trajectory(
        0, steps=[step, unread], report=report, patch=f"diff --git a/x b/x\n+{HOSTILE}\n"
    ).model_copy(
        update={
            "id": HOSTILE.replace("\x00", ""),
            "task_id": HOSTILE,
            "phase": HOSTILE,
            "group_id": HOSTILE,
            "policy": PolicyRef(spec=HOSTILE, version=HOSTILE),
            "reward": Reward(value=0.0, gate=HOSTILE, terms=terms),
        }
    )
    task = make_task(HOSTILE).model_copy(update={"instruction": HOSTILE, "gold_patch": HOSTILE})
    return write_run(path, [attempt], [task], config={HOSTILE: HOSTILE}, versions={HOSTILE: HOSTILE})


def small_tree() -> Tree:
    """A root step with two that follow it, which reach one state on different paths; one end, one cut-off."""
    other = "ab" * 20

    def node(index: int, parent: int | None, after: str, **more: object) -> TreeNode:
        step = make_step(index).model_copy(update={"parent": parent, "state_before": EMPTY_TREE, "state_after": after})
        return TreeNode(step=Step.model_validate(step.model_dump()), **more)

    end = Leaf(
        node=1,
        stop=StopReason.SUBMITTED,
        final_state=other,
        final_patch="",
        report=make_report(Verdict.RESOLVED),
        reward=Reward(value=1.0, gate="solved", terms={}),
    )
    return Tree(
        id="tree-1",
        phase="search",
        task_id="demo-1",
        task_hash="0",
        policy=PolicyRef(spec="noop", version=None),
        sandbox="namespace",
        search={"branches": 2},
        nodes=(
            node(0, None, EMPTY_TREE, value=0.5, visits=3),
            node(1, 0, other),
            node(2, 0, other, pruned="duplicate_state"),
        ),
        leaves=(end, Leaf(node=2, stop=None, final_state=other, final_patch="")),
        timing=Timing(started_at=THEN),
    )


@contextmanager
def looking_at(
    *paths: Path, index: Path, extras: Extras | None = None, whole: bool = True
) -> Iterator[tuple[TestClient, Site]]:
    """A client of the pages of some runs, whose indexes lie in ``index`` and are whole unless said otherwise."""
    runs = open_runs(paths, index)
    if whole:
        for run in runs:
            run.index.catch_up()
    site = Site({run.name: run for run in runs}, f"/{TOKEN}", extras or Extras())
    with TestClient(make_app(site, TOKEN), base_url="http://127.0.0.1:8421") as client:
        yield client, site
    for run in runs:
        run.close()


def page(client: TestClient, address: str, status: int = 200) -> str:
    """The text of a page, from an address below the token."""
    answer = client.get(f"/{TOKEN}{address}")
    assert answer.status_code == status, answer.text[-2000:]
    return answer.text
