"""A value function by its name: the rules' credits, or a frozen model."""

from collections.abc import Sequence
from pathlib import Path

from patchgym.errors import UsageError
from patchgym.records import Limits, Step
from patchgym.reward.credit import CreditSettings, step_credits
from patchgym.reward.value.features import StepsValue
from patchgym.reward.value.head import ValueHead
from patchgym.reward.value.model import ValueModel

CREDIT = "credit"
MODEL = "model:"


def load_value(path: Path, expected: str = "") -> ValueModel | ValueHead:
    """A saved model: a file is a boosted one, a folder a head.

    Raises:
        DataError: it is none, or its hash is not the ``expected`` one (empty: any).
        PrerequisiteError: it is a head and the train extra is not installed.
    """
    return ValueHead.load(path, expected) if path.is_dir() else ValueModel.load(path, expected)


def opened_value(name: str, expected: str = "") -> tuple[StepsValue, str]:
    """The function that ``credit`` or ``model:PATH`` names, and the model's hash (empty: it is none).

    Raises:
        UsageError: there is no such function.
        DataError, PrerequisiteError: as ``load_value``.
    """
    if name == CREDIT:
        return credit_value, ""
    if name.startswith(MODEL) and len(name) > len(MODEL):
        model = load_value(Path(name.removeprefix(MODEL)), expected)
        return model.value, model.hash
    raise UsageError(f"There is no value function {name!r}", mend="Value functions: credit, model:PATH.")


def credit_value(steps: Sequence[Step], limits: Limits) -> float:
    """The sum of the steps' credits, moved to 0 to 1: 0.5 where nothing was gained or lost. No key file is asked for,
    so that it is no hint at the solution. ``limits`` are not looked at."""
    settings = CreditSettings(bound=0.5)
    return 0.5 + sum(credit.value for credit in step_credits(steps, None, settings))
