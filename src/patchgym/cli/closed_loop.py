"""The closed loop: tasks, demonstrations, measurement, warm start, rounds of reinforcement learning, measurement.

With stages it samples a few attempts first, then more, and then trains; after each stage a gate decides. Each part is
kept in the run directory once it is done: trajectories by phase, updates as metrics with a published checkpoint. A loop
that was interrupted goes through the same parts again and finds them done.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import JsonValue

from patchgym.agent import tells
from patchgym.cli.console import say
from patchgym.cli.recipe import LoopRecipe
from patchgym.cli.stages import rounds_of, sampling
from patchgym.cli.updating import describe, watched_update
from patchgym.cli.workshop import collect, search
from patchgym.diagnose import Alarms
from patchgym.errors import ConfigError, DataError
from patchgym.evaluate import EvalReport, evaluate
from patchgym.evaluate.kept import keep
from patchgym.records import Checklist, Environment, Gate, Record, Step, Task, TaskSetManifest, Trajectory, outcome
from patchgym.rollout import Collector, Phase, PolicySource, RunCounts, TrainableSource, count_run, open_policy
from patchgym.rollout.policies import PolicyOptions
from patchgym.sandbox import SandboxFactory
from patchgym.sandbox.environments import build_environment
from patchgym.store import RunDirectory
from patchgym.tasks.overlap.fingerprints import fingerprint_tasks
from patchgym.tasks.overlap.refuse import overlap_keys
from patchgym.train import OnStep, UpdateReport, flat_groups, grpo, sft

_LOOKING = frozenset({"run_tests", "read_file", "search", "run_command"})
DEMONSTRATE, BASE, WARM, FINAL = "demonstrate", "eval-base", "eval-warm", "eval-final"


class Update(Record):
    """One update of the policy, as ``metrics.jsonl`` keeps it."""

    kind: str = "update"
    name: str
    report: UpdateReport


class LoopReport(Record):
    """What a closed loop came to. ``evaluations`` and ``rounds`` are by phase, in order; ``passed`` says whether
    nothing is broken but what somebody went on from."""

    run: str
    tasks: dict[str, int]
    funnel: dict[str, int]
    dropped: dict[str, int]
    demonstrations: RunCounts
    evaluations: dict[str, EvalReport]
    rounds: dict[str, RunCounts]
    rewards: dict[str, tuple[float, ...]]
    updates: dict[str, UpdateReport]
    checklist: Checklist
    passed: bool
    seconds: float


class ClosedLoop:
    """One closed loop in one run directory. The policy is trained here, from the model ``start``, wherever it is
    sampled."""

    def __init__(
        self,
        recipe: LoopRecipe,
        run: RunDirectory,
        factory: SandboxFactory,
        source: TrainableSource,
        start: str,
        train: Sequence[Task],
        heldout: Sequence[Task],
        *,
        go_on: bool = False,
        build: Callable[[Environment], Path] = build_environment,
    ) -> None:
        """``build`` gives the directory of a built environment; with ``go_on`` it passes what the run has found broken
        so far."""
        self._recipe, self._run, self._source = recipe, run, source
        self._imitated, self._practised = parted(recipe, train)
        others = self._practised if recipe.demonstrations else ()
        self._train, self._heldout = [*self._imitated, *others], heldout
        self._collector = Collector(run, factory, build, recipe.reward, recipe.seed)
        self._current = start
        self._began = time.monotonic()
        self._alarms = Alarms(run, recipe.diagnose, recipe.alarms, go_on=go_on)
        self._shown: list[Trajectory] = []
        self._evaluations: dict[str, EvalReport] = {}
        self._updates: dict[str, UpdateReport] = {}
        self._told: set[str] = set()
        self._rounds: dict[str, list[Trajectory]] = {}

    @property
    def stages(self) -> int:
        """How many the recipe has."""
        return len(self._recipe.stages)

    def go(self, built: TaskSetManifest) -> LoopReport:
        """Do every part that is not done, and report. ``built`` says where the tasks came from.

        Raises:
            PatchgymError: this machine cannot do one of them. What is done stays.
            PausedError: a check finds something broken, and the recipe says that this pauses.
        """
        self._learn(self._recipe.rounds)
        return self.report(built)

    def stage(self, number: int) -> Gate:
        """Do what is not done of a stage of the recipe; the gate after it.

        Raises:
            PatchgymError: this machine cannot do it. What is done stays.
            PausedError: a check finds something broken.
        """
        stage = self._recipe.stages[number - 1]
        if stage.trains:
            self._learn(rounds_of(stage, self._recipe, len(self._practised)))
        else:
            if stage.after_warm_start:
                self._prepare()
            name, (tasks, samples) = f"stage-{number}", sampling(stage, self._recipe, self._practised)
            self._rounds[name] = self._collect(f"Stage {number}: rollouts", Phase(name, tasks, samples), self._source)
        return self._alarms.after(f"stage-{number}", self._rounds.get(f"stage-{number}", ()), stop=True)

    def report(self, built: TaskSetManifest, gate: Gate | None = None) -> LoopReport:
        """What the loop came to so far, with the checklist of ``gate``, or a last one."""
        gate = gate or self._alarms.at_the_end()
        return LoopReport(
            run=str(self._run.path),
            tasks={"train": len(self._train), "heldout": len(self._heldout)},
            funnel=built.funnel,
            dropped=built.dropped,
            demonstrations=count_run(self._shown),
            evaluations=self._evaluations,
            rounds={name: count_run(found) for name, found in self._rounds.items()},
            rewards={name: _rewards(found) for name, found in self._rounds.items()},
            updates=self._updates,
            checklist=gate.checklist,
            passed=gate.passed,
            seconds=time.monotonic() - self._began,
        )

    def _prepare(self) -> None:
        """Demonstrations, the base model's measure and the warm start."""
        if self._updates:
            return
        recipe = self._recipe
        gold = open_policy("gold", PolicyOptions(tools=recipe.rollout.tools))
        self._shown = self._collect("Demonstrations (gold)", Phase(DEMONSTRATE, self._imitated, 1), gold)
        self._look("demonstrate", self._shown)
        solved = without_guesses([one for one in self._shown if outcome.solved(one)], recipe)
        self._evaluations[BASE] = self._evaluate("Held-out, base model", BASE)
        self._updates["warm-start"] = self._update(
            "warm-start",
            lambda start, out, on_step, state: sft(
                solved,
                start=start,
                out=out,
                settings=recipe.warm_start,
                trained_on=self._keys(solved),
                on_step=on_step,
                on_report=self._alarms.steps("warm-start", imitation=True),
                state=state,
            ),
        )
        self._evaluations[WARM] = self._evaluate("Held-out, after the warm start", WARM)

    def _learn(self, rounds: int) -> None:
        """So many rounds of reinforcement learning, between two measurements."""
        self._prepare()
        for index in range(1, rounds + 1):
            name = f"round-{index}"
            self._rounds[name] = self._roll_out(f"Round {index}: rollouts", self._round(index))
            self._look(name, self._rounds[name])
            self._updates[name] = self._reinforce(name, self._rounds[name])
            self._look(f"{name}, update")
            every = self._recipe.evaluation.every
            if every and index % every == 0 and index < rounds:
                measured = f"eval-{name}"
                self._evaluations[measured] = self._evaluate(f"Held-out, after round {index}", measured)
        if rounds:
            self._evaluations[FINAL] = self._evaluate("Held-out, after RL", FINAL)

    def _look(self, place: str, found: Sequence[Trajectory] = ()) -> None:
        """Let the alarms look at the run as it stands, and say what they find where they do not pause: each check once,
        for the checklist at the end has its last word."""
        gate = self._alarms.after(place, found)
        broken = gate.checklist.first
        if broken is not None and not gate.passed and broken.check not in self._told:
            self._told.add(broken.check)
            say(f"  Alarm after {place}: {broken.check}: {broken.evidence}")

    def _round(self, index: int) -> Phase:
        """The round's tasks: turn by turn through those that the rounds take, in their order."""
        count = min(self._recipe.tasks_per_round, len(self._practised))
        first = (index - 1) * count
        tasks = [self._practised[(first + offset) % len(self._practised)] for offset in range(count)]
        return Phase(f"round-{index}", tasks, self._recipe.samples)

    def _collect(self, title: str, phase: Phase, source: PolicySource) -> list[Trajectory]:
        self._alarms.reached(phase.name)
        return collect(title, self._collector, self._run, phase, source, self._recipe.rollout)

    def _roll_out(self, title: str, phase: Phase) -> list[Trajectory]:
        """The attempts of a round: single ones or the paths of search trees, and further samples of flat groups."""
        recipe = self._recipe
        if recipe.search is not None:
            self._alarms.reached(phase.name)
            return search(title, self._collector, self._run, phase, self._source, recipe.rollout, recipe.search)
        found = self._collect(title, phase, self._source)
        if not recipe.resample:
            return found
        # Of the first samples alone, so that a loop that was interrupted comes to the same groups.
        flat = flat_groups([one for one in found if one.sample_index < phase.samples], recipe.grpo)
        tasks = [task for task in phase.tasks if f"{phase.name}/{task.id}" in flat]
        if not tasks:
            return found
        more = Phase(phase.name, tasks, phase.samples + recipe.resample)
        found = self._collect(f"{title}, {len(tasks)} flat groups again", more, self._source)
        row: dict[str, JsonValue] = {
            "kind": "resample",
            "name": phase.name,
            "groups": [*sorted(flat)],
            "samples": recipe.resample,
            "still_flat": [*sorted(flat & flat_groups(found, recipe.grpo))],
        }
        if row not in self._run.metrics():
            self._run.log_metrics(row)
        return found

    def _evaluate(self, title: str, name: str) -> EvalReport:
        wanted = self._recipe.evaluation
        settings = self._recipe.rollout.model_copy(update={"temperature": wanted.temperature})
        phase = Phase(name, self._heldout, wanted.samples)
        self._alarms.reached(name)
        found = collect(title, self._collector, self._run, phase, self._source, settings)
        report = evaluate(found, self._heldout, seed=self._recipe.seed, objects=self._run.objects)
        keep(self._run, name, report)
        return report

    def _reinforce(self, name: str, found: Sequence[Trajectory]) -> UpdateReport:
        settings = self._recipe.grpo
        return self._update(
            name,
            lambda start, out, on_step, state: grpo(
                found,
                start=start,
                out=out,
                settings=settings,
                trained_on=self._keys(found),
                trees=[tree for tree in self._run.trees if tree.phase == name],
                key_files={task.id: task.key_files for task in self._train},
                on_step=on_step,
                on_report=self._alarms.steps(name, imitation=False),
                state=state,
            ),
        )

    def _keys(self, trajectories: Sequence[Trajectory]) -> dict[str, tuple[str, ...]]:
        """What tells the overlap of the tasks that these trajectories are of."""
        ids = {trajectory.task_id for trajectory in trajectories}
        tasks = [task for task in self._train if task.id in ids]
        return {found.id: overlap_keys(found) for found in fingerprint_tasks(tasks, self._run.objects)}

    def _update(self, name: str, make: Callable[[str, Path, OnStep, Path], UpdateReport]) -> UpdateReport:
        """The update of that name, made now or before, and its version taken into use."""
        checkpoints = self._run.path / "checkpoints"
        report = self._kept_update(name)
        if report is None:
            asyncio.run(self._source.rest())
            with watched_update(f"Update: {name}") as on_step:
                report = make(self._current, checkpoints, on_step, self._run.path / "updates" / name)
            self._run.log_metrics(Update(name=name, report=report).model_dump(mode="json"))
            say(f"    {describe(report)}")
        self._alarms.reached(f"update {name}")
        if report.version is not None:
            self._current = str(checkpoints / report.version)
            asyncio.run(self._source.use(Path(self._current)))
        return report

    def _kept_update(self, name: str) -> UpdateReport | None:
        for row in self._run.metrics():
            if row.get("kind") != "update" or row.get("name") != name:
                continue
            report = Update.model_validate(row).report
            if report.version is not None and not (self._run.path / "checkpoints" / report.version).is_dir():
                raise DataError(
                    f"Checkpoint {report.version} is missing from {self._run.path}",
                    why=f"The run says that {name} published it.",
                    mend="Start the loop again in another --out.",
                )
            return report
        return None


def parted(recipe: LoopRecipe, train: Sequence[Task]) -> tuple[list[Task], list[Task]]:
    """The tasks whose solutions the warm start imitates, and those that the rounds take, each in its order.

    Raises:
        ConfigError: all would be imitated, and none left.
    """
    drawn = sorted(train, key=lambda task: hashlib.sha256(f"{recipe.seed}/{task.id}".encode()).digest())
    last = recipe.stages[-1].tasks if recipe.stages else 0
    count = recipe.demonstrations
    if count and count >= len(train):
        raise ConfigError(
            f"The recipe imitates {count} tasks, and there are {len(train)} to train on",
            why="The rounds take the tasks that are left.",
            mend="Lower demonstrations, or take a larger task set.",
        )
    ids = {task.id for task in drawn[:count]}
    ordered = drawn if recipe.order == "drawn" else sorted(train, key=_size)
    practised = [task for task in ordered if task.id not in ids]
    practised = practised[:last] if last else practised
    return [task for task in ordered if task.id in ids] if count else practised, practised


def without_guesses(solved: Sequence[Trajectory], recipe: LoopRecipe) -> Sequence[Trajectory]:
    """Of demonstrations those that the agent could have come to: where all that it sees is its briefing, an edit of
    another line would teach it to make up lines."""
    if not recipe.rollout.briefing or _LOOKING.intersection(recipe.rollout.tools):
        return solved
    kept = [one for one in solved if not any(map(_guesses, one.steps))]
    if len(kept) < len(solved):
        say(f"  {len(solved) - len(kept)} of {len(solved)} demonstrations edit a line that is not told: not imitated")
    return kept


def _guesses(step: Step) -> bool:
    action = step.action
    if action is None or action.tool != "edit_line":
        return False
    path, line = (str(action.arguments[name]) for name in ("path", "line"))
    return not any(tells(message.content, path, int(line)) for message in step.prompt)


def _size(task: Task) -> tuple[int, int]:
    return task.scope.files, task.scope.lines


def _rewards(found: Sequence[Trajectory]) -> tuple[float, ...]:
    return tuple(t.reward.value for t in found if t.reward is not None and t.reward.value is not None)
