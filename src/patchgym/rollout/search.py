"""Tree search over one task: branches from forked sandboxes, so that nothing is run twice."""

import hashlib
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal, Protocol

from patchgym.agent import Conversation, Surroundings, stop_of, submitted
from patchgym.content import diff_trees
from patchgym.errors import ContextLengthError, EndpointError, SandboxError
from patchgym.records import Leaf, Outcome, PolicyRef, Step, StopReason, Task, Timing, Tree, TreeNode
from patchgym.reward.value.features import StepsValue
from patchgym.rollout.strategies import STRATEGIES, Node, SearchSettings, credit
from patchgym.sandbox import Sandbox, SandboxFactory
from patchgym.testrun import Built, run_tests, sandbox_spec

_ALIVE = 32  # sandboxes that one search holds


class Grade(Protocol):
    """Grades and rewards what one path came to."""

    async def __call__(self, leaf: Leaf, steps: list[Step]) -> Leaf:
        """The leaf with its report and reward."""
        ...


class Search:
    """One search. ``around`` is as for one episode; ``built`` the task's environment; ``on_step`` is called with each
    step once it is whole. With ``by_steps`` a place is valued by the steps that lead to it."""

    def __init__(
        self,
        name: str,
        task: Task,
        around: Surroundings,
        factory: SandboxFactory,
        built: Built,
        settings: SearchSettings,
        on_step: Callable[[Step], None] = lambda step: None,
        by_steps: StepsValue | None = None,
    ) -> None:
        self._by_steps = by_steps
        self._name, self._task, self._around = name, task, around
        self._factory, self._built, self._settings, self._on_step = factory, built, settings, on_step
        self._nodes: list[Node] = []
        self._values: dict[str, float] = {}
        self._seen: set[tuple[str, str]] = set()
        self._best = 0.0
        self._sampled = 0
        self._alive: list[Node] = []
        limits = around.view.limits
        self._started, self._clock = datetime.now(UTC), time.monotonic()
        self._until = self._clock + limits.seconds * max(1.0, settings.nodes / max(1, limits.turns))

    async def run(self) -> Node:
        """Search until the budget is spent or nothing is left to try; the root. All sandboxes are closed then.

        Raises:
            SandboxError: not even the first sandbox could be made.
        """
        root = Node(Conversation.begun(self._around))
        settings, choose = self._settings, STRATEGIES[self._settings.strategy]
        try:
            root.sandbox = await self._at(root.conversation.state)
            self._alive.append(root)
            root.value = await self._value(root)
            while self._has_budget():
                node = choose(root, settings)
                if node is None:
                    break
                await self._branch(node)
        finally:
            for node in list(self._alive):
                await self._give_up(node)
        return root

    async def record(self, root: Node, policy: PolicyRef, sandbox: str, phase: str, grade: Grade) -> Tree:
        """The tree, with every finished path graded."""
        clock = time.monotonic()
        places = {id(node): index for index, node in enumerate(self._nodes)}
        leaves = []
        for node in root.walk():
            if node.children or (node.stop is None and node.step is None):
                continue
            holder = node if node.step is not None else node.parent
            place = places[id(holder)] if holder is not None and holder.step is not None else None
            state = node.conversation.state
            leaf = Leaf(
                node=place,
                stop=node.stop,
                final_state=state,
                final_patch=diff_trees(self._around.objects, self._task.workspace, state),
                faults=(node.fault,) if node.fault is not None else (),
            )
            leaves.append(await grade(leaf, _path(node)) if leaf.stop is not None and not leaf.faults else leaf)
        return Tree(
            id=self._name,
            phase=phase,
            task_id=self._task.id,
            task_hash=self._task.content_hash(),
            policy=policy,
            sandbox=sandbox,
            tools=self._around.told,
            search=self._settings.model_dump(mode="json"),
            nodes=tuple(_told(node) for node in self._nodes),
            leaves=tuple(leaves),
            timing=Timing(
                started_at=self._started,
                total_seconds=time.monotonic() - self._clock,
                grading_seconds=time.monotonic() - clock,
            ),
        )

    def _has_budget(self) -> bool:
        settings = self._settings
        within = not settings.tokens or self._sampled < settings.tokens
        return within and (not settings.nodes or len(self._nodes) < settings.nodes) and time.monotonic() < self._until

    async def _branch(self, node: Node) -> None:
        """Sample one more answer at a node, and act on it in a fork of its sandbox."""
        node.tried += 1
        child = Node(node.conversation.forked(), node.depth + 1, node)
        index = len(self._nodes)
        seed = int.from_bytes(hashlib.sha256(f"{self._around.settings.sampling.seed}/{index}".encode()).digest()[:4])
        try:
            child.sandbox = await (node.sandbox.fork() if node.sandbox else self._at(node.conversation.state))
            self._alive.append(child)
            step = await child.conversation.turn(child.sandbox, index, self._until - time.monotonic(), seed=seed)
            if step.state_after != step.state_before and self._by_steps is None:
                await self._value(child)  # which is known from here on
        except (ContextLengthError, EndpointError, SandboxError) as error:
            child.stop, child.fault = stop_of(error)
            node.children.append(child)
            await self._give_up(child)
            return
        child.step = step
        node.children.append(child)
        self._nodes.append(child)
        self._sampled += step.usage.sampled_tokens if step.usage else 0
        self._on_step(step)
        child.stop = StopReason.SUBMITTED if submitted(step) else child.conversation.limit_reached()
        child.pruned = self._duplicate(step) if child.stop is None else None
        if child.pruned is None:
            child.value = await self._value(child)
            self._best = max(self._best, child.value or 0.0)
            child.pruned = self._too_low(child) if child.stop is None else None
        credit(child, child.value or 0.0)
        if child.stop is not None or child.pruned is not None:
            await self._give_up(child)
        if not node.is_open(self._settings):
            await self._give_up(node)
        for spare in self._alive[:-_ALIVE]:
            await self._give_up(spare)

    def _duplicate(self, step: Step) -> Literal["duplicate_state"] | None:
        """A step that leads where another one led: to the same state, or, where it changed nothing, by the same action
        in the same state."""
        assert step.state_after is not None
        changed = step.state_after != step.state_before
        doing = "" if changed else (step.action.model_dump_json(exclude={"call_id"}) if step.action else "unreadable")
        key = (step.state_after, doing)
        if key in self._seen and self._settings.merge:
            return "duplicate_state"
        self._seen.add(key)
        return None

    def _too_low(self, node: Node) -> Literal["low_value"] | None:
        margin = self._settings.margin
        return "low_value" if margin is not None and (node.value or 0.0) < self._best - margin else None

    async def _value(self, node: Node) -> float | None:
        """What the steps to a node are worth; or the share of the visible failing tests that pass in its state, found
        out once for each state."""
        if self._by_steps is not None:
            steps = _path(node)
            return self._by_steps(steps, self._around.view.limits) if steps else None
        failing = list(self._around.view.failing_tests)
        if self._settings.value == "none" or not failing:
            return None
        state = node.conversation.state
        if state not in self._values:
            sandbox = await (node.sandbox.fork() if node.sandbox else self._at(state))
            try:
                run = await run_tests(
                    sandbox, self._around.view.environment, failing, timeout_s=self._around.view.test_timeout_s
                )
            finally:
                await sandbox.close()
            passed = sum(run.outcomes[test] is Outcome.PASSED for test in failing)
            self._values[state] = passed / len(failing)
        return self._values[state]

    async def _at(self, state: str) -> Sandbox:
        return await self._factory.create(sandbox_spec(state, self._task.environment, self._built))

    async def _give_up(self, node: Node) -> None:
        """Close a node's sandbox. The node can still be branched from: its state brings the files back."""
        if node in self._alive:
            self._alive.remove(node)
        sandbox, node.sandbox = node.sandbox, None
        if sandbox is not None:
            await sandbox.close()


def _told(node: Node) -> TreeNode:
    assert node.step is not None
    return TreeNode(step=node.step, value=node.value, visits=node.visits, pruned=node.pruned)


def _path(node: Node) -> list[Step]:
    steps: list[Step] = []
    at: Node | None = node
    while at is not None:
        if at.step is not None:
            steps.append(at.step)
        at = at.parent
    return steps[::-1]
