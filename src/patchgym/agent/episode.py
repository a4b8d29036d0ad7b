"""One episode, from the instruction to the last state of the workspace."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from patchgym.agent.conversation import Conversation, Surroundings, submitted
from patchgym.errors import ContextLengthError, EndpointError, SandboxError
from patchgym.records import Fault, Step, StopReason, ToolSpec
from patchgym.sandbox import Sandbox


@dataclass
class Episode:
    """What came of an episode. ``final_state`` is a tree id of the run's store; ``faults`` are infrastructure's;
    ``tools`` are those that the model was told of by its endpoint."""

    steps: list[Step] = field(default_factory=list)
    final_state: str = ""
    stop: StopReason = StopReason.TURN_LIMIT
    faults: list[Fault] = field(default_factory=list)
    sampling_seconds: float = 0.0
    acting_seconds: float = 0.0
    tools: tuple[ToolSpec, ...] = ()


async def run_episode(
    around: Surroundings, sandbox: Sandbox, *, on_step: Callable[[Step], None] = lambda step: None
) -> Episode:
    """Let a policy work in ``sandbox`` until it submits or a limit of the task is reached.

    ``on_step`` is called with each step once it is whole. Faults of the sandbox or the policy's endpoint end the
    episode and are recorded, not raised.
    """
    conversation = Conversation.begun(around)
    episode = Episode(final_state=conversation.state, tools=around.told)
    began = time.monotonic()
    try:
        while True:
            left = around.view.limits.seconds - (time.monotonic() - began)
            stop = conversation.limit_reached() or (StopReason.TIME_LIMIT if left <= 0 else None)
            if stop is not None:
                episode.stop = stop
                break
            clock = time.monotonic()
            step = await conversation.turn(sandbox, len(episode.steps), left)
            episode.steps.append(step)
            episode.final_state = conversation.state
            episode.sampling_seconds += step.sampling_seconds or 0.0
            episode.acting_seconds += time.monotonic() - clock - (step.sampling_seconds or 0.0)
            on_step(step)
            if submitted(step):
                episode.stop = StopReason.SUBMITTED
                break
    except (ContextLengthError, SandboxError, EndpointError) as error:
        episode.stop, fault = stop_of(error)
        episode.faults += [fault] if fault is not None else []
    return episode


def stop_of(error: ContextLengthError | SandboxError | EndpointError) -> tuple[StopReason, Fault | None]:
    """Why an episode ended that an error ended, and the fault where it was infrastructure's."""
    if isinstance(error, ContextLengthError):
        return StopReason.CONTEXT_LIMIT, None
    where = "sandbox" if isinstance(error, SandboxError) else "policy"
    return StopReason.INFRASTRUCTURE, Fault(kind=type(error).__name__, where=where, message=str(error))
