"""An episode as a trainer takes it: prompt, response, mask, log-probabilities, reward."""

from dataclasses import dataclass

from patchgym.errors import EndpointError
from patchgym.records import Trajectory
from patchgym.traces.writers.samples import token_samples, was_cut
from patchgym.traces.writers.writer import Unwritable


@dataclass(frozen=True)
class EpisodeRow:
    """One episode. ``mask`` is 1 on ids that the policy sampled; ``logprobs`` is 0.0 where it did not (None: the
    sampler does not say). Both have the length of ``response_ids``. A ``reward`` of None means that infrastructure lost
    the episode: its ids are then two fillers, of which none is marked, and it must enter no baseline."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    reward: float | None
    trajectory: Trajectory

    @property
    def stop_reason(self) -> str:
        """``length`` where a limit ended the episode, else ``stop``."""
        return "length" if was_cut(self.trajectory) else "stop"

    @property
    def turns(self) -> int:
        """How many messages the policy wrote."""
        return sum(not step.continues for step in self.trajectory.steps)


def episode_row(trajectory: Trajectory, *, filler: int, need_logprobs: bool = True) -> EpisodeRow:
    """The row of an episode that a ``TokenPolicy`` acted in. ``filler`` is an id that stands where an episode was lost.

    Raises:
        EndpointError: the sampler gave no log-probabilities, and they are needed.
    """
    reward = trajectory.reward
    if trajectory.status != "completed" or not trajectory.in_baseline or reward is None or reward.value is None:
        none_said = (0.0,) if need_logprobs else None
        return EpisodeRow((filler,), (filler,), (0,), none_said, None, trajectory)
    try:
        (sample,) = token_samples(trajectory, need_logprobs=need_logprobs)
    except Unwritable as unwritable:
        raise EndpointError(
            f"The episode {trajectory.id} cannot be trained on",
            why=f"{unwritable}.".capitalize(),
            mend="Let the trainer's sampler return log-probabilities.",
        ) from unwritable
    return EpisodeRow(sample.prompt_ids, sample.response_ids, sample.mask, sample.logprobs, reward.value, trajectory)
