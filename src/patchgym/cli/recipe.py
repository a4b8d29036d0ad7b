"""The recipes of the closed loop, and of a single update."""

from typing import Any, Literal

from pydantic import Field, JsonValue, model_validator

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
    """Held-out measurement: samples a task and how they are drawn (temperature 0 is greedy). It is made before, after
    the warm start and after the last round, and with ``every`` after every so many rounds as well (0: not)."""

    samples: int = Field(1, ge=1)
    temperature: float = Field(0.0, ge=0.0)
    every: int = Field(0, ge=0)


class Stage(Settings):
    """A part of a staged loop, after which a gate decides. Either it only samples ``rollouts`` attempts (``samples`` of
    each task, else the recipe's), of the policy as it is or ``after_warm_start``; or it trains on ``tasks`` training
    tasks (0: all) for ``rounds`` rounds, or for ``epochs`` over them."""

    rollouts: int = Field(0, ge=0)
    samples: int | None = Field(None, ge=1)
    after_warm_start: bool = False
    tasks: int = Field(0, ge=0)
    rounds: int = Field(0, ge=0)
    epochs: int = Field(0, ge=0)

    @property
    def trains(self) -> bool:
        """Whether it is the one that trains."""
        return self.rounds > 0 or self.epochs > 0

    @model_validator(mode="after")
    def _one_kind(self) -> "Stage":
        if bool(self.rollouts) == self.trains or (self.rounds and self.epochs):
            raise ConfigError(
                "A stage says one of rollouts, rounds and epochs",
                why=f"This one says rollouts {self.rollouts}, rounds {self.rounds} and epochs {self.epochs}.",
                mend="Sample in one stage, and train in the last.",
            )
        return self


class LoopRecipe(Settings):
    """Everything that ``patchgym loop`` does, in the order in which it does it.

    The warm start imitates the solutions of ``demonstrations`` training tasks, which are drawn by the seed; the rounds
    take the others, whose solutions the policy never saw (0: both take all tasks). ``rounds`` rounds of reinforcement
    learning take ``tasks_per_round`` training tasks each (turn by turn through the set, in an ``order``: the smallest
    solution first, or drawn by the seed) with ``samples`` samples of each; with ``search`` a sample is a search tree. A
    group whose rewards do not differ gets ``resample`` samples more, once. ``train_on_benchmarks`` lets it train on
    tasks that come from a benchmark, which are held out otherwise; the run's manifest records it. ``base_url`` is where
    the server of a policy ``vllm:MODEL`` is, and ``start`` the model on this machine that is trained for it, if MODEL
    is no path.

    With ``stages`` it goes on from one to the next through gates; the last one trains, and says how long in place of
    ``rounds``. ``diagnose`` are the thresholds of the checks, and ``alarms`` says whether they pause.
    """

    seed: int = 0
    policy: str = "local:smollm2"
    demonstrations: int = Field(0, ge=0)
    order: Literal["smallest", "drawn"] = "smallest"
    rounds: int = Field(2, ge=0)
    tasks_per_round: int = Field(6, ge=1)
    samples: int = Field(4, ge=2)
    resample: int = Field(0, ge=0)
    search: SearchSettings | None = None
    base_url: str | None = None
    start: str | None = None
    train_on_benchmarks: bool = False
    stages: tuple[Stage, ...] = ()
    tasks: TaskSetRecipe = TaskSetRecipe()
    rollout: RolloutSettings = RolloutSettings()
    reward: RewardSettings = RewardSettings()
    warm_start: SftSettings = SftSettings()
    grpo: PolicyGradientSettings = PolicyGradientSettings()
    evaluation: EvalSettings = EvalSettings()
    diagnose: DiagnoseSettings = DiagnoseSettings()
    alarms: AlarmSettings = AlarmSettings()

    @model_validator(mode="after")
    def _last_trains(self) -> "LoopRecipe":
        trains = [stage.trains for stage in self.stages]
        if any(trains[:-1]) or (trains and not trains[-1]):
            raise ConfigError(
                "The last stage trains, and only that one",
                why=f"Of {len(trains)} stages, those that train are {[n for n, one in enumerate(trains, 1) if one]}.",
                mend="Give the last stage rounds or epochs, and the others rollouts.",
            )
        return self

    def config(self) -> dict[str, JsonValue]:
        """What a run's manifest keeps of it. Thresholds and alarms may change while a run goes on."""
        data: dict[str, JsonValue] = self.model_dump(mode="json", exclude={"diagnose", "alarms"})
        return data


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
    diagnose: DiagnoseSettings = DiagnoseSettings()
    alarms: AlarmSettings = AlarmSettings()

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
