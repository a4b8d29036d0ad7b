"""``patchgym show``: a run's trajectories, or one of them step by step."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import JsonValue

from patchgym.cli.console import number, say, show_json, show_line, show_table
from patchgym.cli.drawing import asked_for, came_of, drawn
from patchgym.errors import UsageError
from patchgym.records import Reward, Step, Stream, Trajectory

if TYPE_CHECKING:
    from patchgym.store import RunDirectory


@click.command()
@click.argument("path", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("trajectory_id", metavar="ID", required=False)
@click.option("--step", "index", type=int, metavar="K", help="One step: what was asked, done, and came of it.")
@click.option("--tree", "as_tree", is_flag=True, help="The files before step K (without --step: at the end).")
@click.option("--diff", "as_diff", is_flag=True, help="What had changed before step K since the start.")
@click.option("--file", "file", metavar="PATH", help="The bytes of one file before step K.")
@click.option("--json", "as_json", is_flag=True, help="Print records as JSON.")
def command(
    path: Path,
    trajectory_id: str | None,
    index: int | None,
    as_tree: bool,
    as_diff: bool,
    file: str | None,
    as_json: bool,
) -> None:
    """Show the trajectories of a run; with ID, the steps of one; with --step K, that step whole.

    The workspace can be seen as it was before every step: its files, what had changed, and each file's bytes.
    """
    from patchgym.store import RunDirectory

    run = RunDirectory.read(path)
    for problem in run.problems:
        say(problem)
    if trajectory_id is None:
        if index is not None or as_tree or as_diff or file is not None:
            raise UsageError("A step belongs to a trajectory", mend=f"Name one: patchgym show {path} ID --step K")
        _list(run, path, as_json)
        return
    if trajectory_id in run.tree_ids and index is None and not (as_tree or as_diff or file is not None):
        tree = run.tree(trajectory_id)
        if as_json:
            show_json(tree)
        else:
            show_line("\n".join(drawn(tree)))
        return
    trajectory = run.trajectory(trajectory_id)
    step = _step(trajectory, index) if index is not None else None
    if as_tree or as_diff or file is not None:
        _state(run, trajectory, step, as_tree=as_tree, as_diff=as_diff, file=file)
    elif as_json:
        show_json(step if step is not None else trajectory)
    elif step is not None:
        _show_step(step)
    else:
        _show_trajectory(trajectory)


def _list(run: "RunDirectory", path: Path, as_json: bool) -> None:
    if as_json:
        show_json([_summary(trajectory) for trajectory in run.trajectories])
        return
    rows, imported = [], 0
    for trajectory in run.trajectories:
        imported += trajectory.origin is not None
        rows.append(
            (
                trajectory.id,
                str(len(trajectory.steps)),
                trajectory.policy.version or trajectory.policy.spec,
                trajectory.report.verdict if trajectory.report else (trajectory.stop or "-").replace("_", " "),
                number(trajectory.reward.value if trajectory.reward else None),
            )
        )
    columns = ("trajectory", "steps", "model", "verdict", "reward")
    # What was imported has no reward, and what was made here all comes from one model.
    kept = (0, 1, 2, 3) if imported == len(rows) else (0, 1, 3, 4)
    show_table(
        f"{path.name}: {len(rows)} trajectories",
        [columns[at] for at in kept],
        [[row[at] for at in kept] for row in rows],
    )
    trees = [(tree.id, str(len(tree.nodes)), str(len(tree.states)), str(len(tree.leaves))) for tree in run.trees]
    if trees:
        show_table(f"{len(trees)} search trees", ("tree", "steps", "states", "leaves"), trees)


def _summary(trajectory: Trajectory) -> JsonValue:
    return {
        "id": trajectory.id,
        "phase": trajectory.phase,
        "task_id": trajectory.task_id,
        "steps": len(trajectory.steps),
        "stop": trajectory.stop,
        "status": trajectory.status,
        "verdict": trajectory.report.verdict if trajectory.report else None,
        "reward": trajectory.reward.value if trajectory.reward else None,
    }


def _step(trajectory: Trajectory, index: int) -> Step:
    for step in trajectory.steps:
        if step.index == index:
            return step
    raise UsageError(
        f"{trajectory.id} has no step {index}", why=f"It has steps 0 to {max(0, len(trajectory.steps) - 1)}."
    )


def _show_trajectory(trajectory: Trajectory) -> None:
    origin = trajectory.origin
    about = [
        f"task {trajectory.task_id}",
        f"policy {trajectory.policy.spec} {trajectory.policy.version or ''}".rstrip(),
    ]
    if origin is not None:
        about.append(f"from {origin.file} ({origin.format})")
        about += [f"repository {origin.repo}"] if origin.repo else []
        about += [f"commit {origin.base_commit}"] if origin.base_commit else []
    if trajectory.spawned_by is not None:
        step = f", step {trajectory.spawned_by.step}" if trajectory.spawned_by.step is not None else ""
        about.append(f"a sub-agent of {trajectory.spawned_by.trajectory}{step}")
    show_line(f"{trajectory.id}: {', '.join(about)}")
    rows = [
        (_place(step), asked_for(step), came_of(step), ", ".join(step.changed_paths or ())) for step in trajectory.steps
    ]
    columns = ("step", "action", "came of it", "changed")
    kept = 4 if any(row[3] for row in rows) else 3
    show_table("Steps", columns[:kept], [row[:kept] for row in rows])
    if origin is not None and origin.left_out:
        counts = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in origin.left_out.items())
        show_line(f"Left out of the log: {counts}")
    if trajectory.report is not None:
        show_line(f"Verdict {trajectory.report.verdict}: {trajectory.report.why}".rstrip(": "))
    if trajectory.reward is not None:
        _show_reward(trajectory.reward)
    if trajectory.stop is not None:
        show_line(f"Stopped: {trajectory.stop.replace('_', ' ')}")
    if trajectory.final_patch:
        show_line(f"\n{trajectory.final_patch}")


def _show_reward(reward: Reward) -> None:
    waits = ", its second layer waits for its group" if reward.second_layer == "waits" else ""
    show_line(f"Reward {number(reward.value)}{waits}")
    rows = [(name, number(term.raw, 3), number(term.value, 4), term.why) for name, term in reward.terms.items()]
    if rows:
        show_table("Terms", ("term", "raw", "adds", "why"), rows)
    for one in reward.evidence:
        show_line(f"{'Proof' if one.proof else 'Mark'}: {one.kind} at {one.where}: {one.why}")


def _place(step: Step) -> str:
    """A step's index, and where it does not follow the one before it, the step that it follows."""
    if step.parent == (step.index - 1 if step.index else None):
        return str(step.index)
    return f"{step.index} after {'the start' if step.parent is None else step.parent}"


def _show_step(step: Step) -> None:
    if step.compacted:
        show_line("[what follows takes the place of the conversation before]\n")
    if step.continues:
        show_line("[asked for in the message of the step before]\n")
        if step.action is not None:
            show_line(f"[{step.action.tool}]\n{json.dumps(step.action.arguments, ensure_ascii=False, indent=1)}\n")
    for message in (*step.prompt, *(() if step.continues else (step.message,))):
        if message.reasoning:
            show_line(f"[{message.role}, thinking]\n{message.reasoning}\n")
        if message.content or not message.tool_calls:
            show_line(f"[{message.role}]\n{message.content}\n")
        for call in message.tool_calls:
            show_line(f"[{message.role} calls {call.name}]\n{call.arguments}\n")
        for one in message.attachments:
            kept = f"{one.size} bytes in {one.blob}" if one.blob else "not kept"
            show_line(f"[{message.role} attaches {one.media_type}, {kept}]\n")
    if step.parse_error:
        show_line(f"No action could be read: {step.parse_error}")
    seen = step.observation
    if seen is None:
        show_line("It was never answered." if step.action is not None else "It asked for nothing.")
        return
    facts = _facts(step)
    show_line(f"[observation{facts and f': {facts}'}]\n{seen.shown}\n")
    for name, stream in (("stdout", seen.stdout), ("stderr", seen.stderr)):
        if stream is not None and stream.text:
            show_line(f"[{name}, {_kept(stream)}]\n{stream.text}\n")
    if step.changed_paths:
        show_line(f"Changed: {', '.join(step.changed_paths)}")


def _facts(step: Step) -> str:
    seen = step.observation
    assert seen is not None
    facts = [f"exit code {seen.exit_code}" if seen.exit_code is not None else "", seen.ending.replace("_", " ")]
    facts += ["timed out" if seen.timed_out and seen.ending == "none" else ""]
    facts += [f"{number(seen.seconds)} s" if seen.seconds is not None else ""]
    return ", ".join(fact for fact in facts if fact and fact != "none")


def _kept(stream: Stream) -> str:
    return (
        f"{stream.size} bytes" + (", cut" if stream.cut else "") + (f", whole in {stream.blob}" if stream.blob else "")
    )


def _state(
    run: "RunDirectory", trajectory: Trajectory, step: Step | None, *, as_tree: bool, as_diff: bool, file: str | None
) -> None:
    """The workspace before a step, or at the end."""
    from patchgym.content import diff_trees

    tree = step.state_before if step is not None else trajectory.final_state
    start = trajectory.steps[0].state_before if trajectory.steps else trajectory.final_state
    if tree is None or start is None:
        raise UsageError(
            f"{trajectory.id} has no states",
            why="It was imported from a log, which holds none.",
            mend="Replay it on its repository: patchgym replay --help",
        )
    if as_tree:
        for path, entry in sorted(run.objects.entries(tree).items()):
            show_line(f"{entry.mode:06o} {entry.id} {path}")
    if as_diff:
        show_line(diff_trees(run.objects, start, tree).rstrip("\n"))
    if file is not None:
        found = run.objects.entries(tree).get(file)
        if found is None:
            raise UsageError(f"There was no file {file}", mend="List them with --tree.")
        sys.stdout.buffer.write(run.objects.get(found.id))
