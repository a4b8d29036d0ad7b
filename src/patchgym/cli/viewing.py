"""What pages show that only the command line can give: judgements made now, the blind spot check, tokens as text, task
sets. Each is loaded when a page asks for it."""

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from patchgym.cli.spotcheck import keep_label, read_labels
from patchgym.content import ObjectStore
from patchgym.diagnose.spotcheck import EACH, Chosen, Label, agreed, choose
from patchgym.records import PolicyRef, Reward, Timing, Trajectory
from patchgym.view.site import Answer, Extras, Finding, Given, SetFacts

if TYPE_CHECKING:
    from patchgym.policy.chat import Tokenizer
    from patchgym.view.opened import OpenedRun


def make_extras(sets: Sequence[Path], tokenizer: str | None) -> Extras:
    """All of them.

    Raises:
        UsageError, DataError: there is no such task set or tokenizer, or it is damaged.
    """
    decode = _decoder(tokenizer) if tokenizer is not None else None
    begun: dict[tuple[str, int], _Blind] = {}

    def spotcheck(run: "OpenedRun", seed: int) -> _Blind:
        """One for each run and seed as long as pages are served: a run that grows does not change what is asked."""
        if (run.name, seed) not in begun:
            begun[run.name, seed] = _Blind(run, seed)
        return begun[run.name, seed]

    return Extras(checks=checks_now, spotcheck=spotcheck, decode=decode, sets=[set_facts(path) for path in sets])


def checks_now(path: Path) -> dict[str, JsonValue]:
    """The checklist of a run, as ``patchgym diagnose`` makes it, to its end."""
    from patchgym.diagnose import diagnose, read_facts
    from patchgym.store import RunDirectory

    found: dict[str, JsonValue] = diagnose(read_facts(RunDirectory.read(path)), whole=True).model_dump(mode="json")
    return found


def set_facts(path: Path) -> SetFacts:
    """How a task set was made, and what an audit finds that runs none of its code.

    Raises:
        UsageError: there is no task set.
        DataError: it is damaged.
    """
    from patchgym.tasks import TaskSet
    from patchgym.tasks.flakes import read_flakes
    from patchgym.tasks.gates.audit import audit
    from patchgym.tasks.gates.settings import GateSettings

    tasks = TaskSet.load(path)
    with tempfile.TemporaryDirectory(prefix="patchgym-view-") as scratch:
        objects = ObjectStore(Path(scratch), tasks.objects)  # patched trees go there: the set stays as it is
        found = asyncio.run(audit(tasks.tasks, objects, GateSettings(), None, flakes=read_flakes(path)))
    return SetFacts(
        name=path.name,
        manifest=tasks.manifest,
        findings=[
            Finding(one.task, f"{one.check}/{one.kind}", f"{one.where}: {one.evidence}".removeprefix(": "), one.mend)
            for one in found.findings
        ],
    )


class _Blind:
    """A spot check of a run, with the same items and the same file as ``patchgym spotcheck``."""

    def __init__(self, run: "OpenedRun", seed: int) -> None:
        run.index.catch_up()
        self._file = run.path / f"spotcheck-{seed}.jsonl"
        self._chosen: Chosen = choose(_rewarded(run), {}, each=EACH, seed=seed)

    @property
    def items(self) -> list[tuple[str, str]]:
        return [(item.id, self._chosen.trajectories[item.id]) for item in self._chosen.items]

    def given(self) -> Mapping[str, Given]:
        labels = read_labels(self._file) if self._file.is_file() else []
        return {label.item: Given(label.label, label.notes) for label in labels}

    def give(self, item: str, label: Answer, notes: str) -> None:
        keep_label(self._file, Label(item=item, label=label, notes=notes))

    def outcome(self) -> list[tuple[str, str]]:
        found = agreed(self._chosen, read_labels(self._file))
        told = [
            ("labelled", f"{found.labelled} of {len(self._chosen.items)}, {found.unsure} of them unsure"),
            ("high reward", f"{found.high_yes} yes, {found.high_no} no"),
            ("low reward", f"{found.low_yes} yes, {found.low_no} no"),
        ]
        if found.kappa is not None:
            told.append(("agreement", f"the reward agrees with {found.agreement:.0%} of the labels"))
            told.append(("kappa", f"{found.kappa:.2f}, 95% interval {found.low:.2f} to {found.high:.2f}"))
        for one in found.differences[:20]:
            notes = f" ({one.notes})" if one.notes else ""
            told.append((one.trajectory, f"reward {one.reward:.2f}, the person says {one.label}{notes}"))
        return told


def _rewarded(run: "OpenedRun") -> list[Trajectory]:
    """The run's attempts in their order, with no more than a spot check chooses by."""
    query = "SELECT id, phase, task, grp, sample, reward, gate, trusted FROM attempts ORDER BY tree IS NOT NULL, rowid"
    with run.index.open() as connection:
        rows = connection.execute(query).fetchall()
    return [
        Trajectory(
            id=row["id"],
            phase=row["phase"],
            task_id=row["task"],
            task_hash=None,
            group_id=row["grp"],
            sample_index=row["sample"],
            policy=PolicyRef(spec="", version=None),
            sandbox=None,
            steps=(),
            final_state=None,
            final_patch=None,
            stop=None,
            status="completed",
            report=None,
            reward=Reward(value=row["reward"], gate=row["gate"] or "", terms={}),
            reward_trusted=bool(row["trusted"]),
            in_baseline=True,
            timing=Timing(),
        )
        for row in rows
    ]


def _decoder(model: str) -> Callable[[Sequence[int]], list[str]]:
    """What turns ids into text, a piece each.

    Raises:
        UsageError, PrerequisiteError: there is no such model, or nothing that can read it.
    """
    from patchgym.policy.models import load_tokenizer

    return partial(_decoded, load_tokenizer(model))


def _decoded(tokenizer: "Tokenizer", ids: Sequence[int]) -> list[str]:
    return [tokenizer.decode([one], skip_special_tokens=False, clean_up_tokenization_spaces=False) for one in ids]
