"""The recipes of the closed loop, and of a single update."""

from typing import Any, Literal

from pydantic import Field, model_validator

from patchgym.config import Settings
from patchgym.diagnose.settings import AlarmSettings, DiagnoseSettings
from patchgym.errors import ConfigError
from patchgym.reward import RewardSettings
from patchgym.rollout import RolloutSettings
from patchgym.rollout.strategies import SearchSettings
from patchgym.tasks import TaskSetRecipe
from patchgym.traces.selecting import AcceptanceRule
from patchgym.train import PolicyGradientSettings, SftSettings
from patchgym.train.algorithms import ALGORITHMS, Algorithm
from patchgym.train.estimate import Expected, Machine, ModelShape


class EvalSettings(Settings):
    """Held-out measurement: samples a task and how they are drawn (temperature 0 is greedy)."""

    samples: int = Field(1, ge=1)
    temperature: float = Field(0.0, ge=0.0)


class LoopRecipe(Settings):
    """Everything that ``patchgym loop`` does, in the order in which it does it.

    ``rounds`` rounds of reinforcement learning take ``tasks_per_round`` training tasks each (turn by turn through the
    set, smallest solution first) with ``samples`` samples of each; with ``search`` a sample is a search tree. A group
    whose rewards do not differ gets ``resample`` samples more, once. ``train_on_benchmarks`` lets it train on tasks
    that come from a benchmark, which are held out otherwise; the run's manifest records it. ``base_url`` is where the
    server of a policy ``vllm:MODEL`` is, and ``start`` the model on this machine that is trained for it, if MODEL is no
    path.
    """

    seed: int = 0
    policy: str = "local:smollm2"
    rounds: int = Field(2, ge=0)
    tasks_per_round: int = Field(6, ge=1)
    samples: int = Field(4, ge=2)
    resample: int = Field(0, ge=0)
    search: SearchSettings | None = None
    base_url: str | None = None
    start: str | None = None
    train_on_benchmarks: bool = False
    tasks: TaskSetRecipe = TaskSetRecipe()
    rollout: RolloutSettings = RolloutSettings()
    reward: RewardSettings = RewardSettings()
    warm_start: SftSettings = SftSettings()
    grpo: PolicyGradientSettings = PolicyGradientSettings()
    evaluation: EvalSettings = EvalSettings()
    diagnose: DiagnoseSettings = DiagnoseSettings()
    alarms: AlarmSettings = AlarmSettings()


class TrainRecipe(Settings):
    """One update: what ``patchgym train`` does.

    ``algorithm`` is ``sft`` (imitate every trajectory), ``rejection`` (imitate those that ``accept`` accepts), one of
    the policy gradients, or ``reward_model`` (fit a value model, as ``patchgym value fit`` does). ``runs`` are run
    directories, of which the trajectories of ``phases`` are taken (none named: all). ``start`` is a model or a
    checkpoint, ``out`` the run directory of the update. ``heldout`` are task sets whose held-out tasks must share
    nothing with those trained on. ``shape``, ``expected`` and ``machine`` are for ``--dry-run``: of a model that is
    not here, of rows that are not there yet, and of the machine that is meant.
    """

    algorithm: Literal["sft", "rejection", "reward_model"] | Algorithm = "dr_grpo"
    runs: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    start: str = "smollm2"
    out: str | None = None
    heldout: tuple[str, ...] = ()
    train_on_benchmarks: bool = False
    accept: AcceptanceRule = AcceptanceRule()
    sft: SftSettings = SftSettings()
    grpo: PolicyGradientSettings = PolicyGradientSettings()
    value: dict[str, str | int | float | bool] = Field(default_factory=dict)
    shape: ModelShape | None = None
    expected: Expected | None = None
    machine: Machine = Machine()

    @model_validator(mode="before")
    @classmethod
    def _one_algorithm(cls, data: Any) -> Any:
        """The table ``grpo`` is checked under the algorithm that the recipe names."""
        if isinstance(data, dict) and data.get("algorithm") in ALGORITHMS and isinstance(data.get("grpo", {}), dict):
            return {**data, "grpo": {"algorithm": data["algorithm"], **data.get("grpo", {})}}
        return data

    @model_validator(mode="after")
    def _agree(self) -> "TrainRecipe":
        if self.algorithm in ALGORITHMS and self.grpo.algorithm != self.algorithm:
            raise ConfigError(
                f"The recipe names two algorithms: {self.algorithm}, and {self.grpo.algorithm} in its table grpo",
                mend="Remove grpo.algorithm.",
            )
        return self

    @property
    def settings(self) -> SftSettings | PolicyGradientSettings:
        """Those of the algorithm."""
        return self.grpo if self.algorithm in ALGORITHMS else self.sft
