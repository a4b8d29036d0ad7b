"""The recipe of the closed loop."""

from pydantic import Field

from patchgym.config import Settings
from patchgym.reward import RewardSettings
from patchgym.rollout import RolloutSettings
from patchgym.tasks import TaskSetRecipe
from patchgym.train import PolicyGradientSettings, SftSettings


class EvalSettings(Settings):
    """Held-out measurement: samples a task and how they are drawn (temperature 0 is greedy)."""

    samples: int = Field(1, ge=1)
    temperature: float = Field(0.0, ge=0.0)


class LoopRecipe(Settings):
    """Everything that ``patchgym loop`` does, in the order in which it does it.

    ``rounds`` rounds of reinforcement learning take ``tasks_per_round`` training tasks each (turn by turn through the
    set, smallest solution first) with ``samples`` samples of each. ``train_on_benchmarks`` lets it train on tasks that
    come from a benchmark, which are held out otherwise; the run's manifest records it.
    """

    seed: int = 0
    policy: str = "local:smollm2"
    rounds: int = Field(2, ge=0)
    tasks_per_round: int = Field(6, ge=1)
    samples: int = Field(4, ge=2)
    train_on_benchmarks: bool = False
    tasks: TaskSetRecipe = TaskSetRecipe()
    rollout: RolloutSettings = RolloutSettings()
    reward: RewardSettings = RewardSettings()
    warm_start: SftSettings = SftSettings()
    grpo: PolicyGradientSettings = PolicyGradientSettings()
    evaluation: EvalSettings = EvalSettings()
