"""The reward recipe, and the proof that refuses one which would reorder outcomes."""

from typing import Self

from pydantic import Field, FiniteFloat, model_validator
from pydantic_core import PydanticCustomError

from patchgym.config import Settings
from patchgym.reward.curve import partial_value

_MANY = (2, 10, 100, 1_000_000)


class TermWeights(Settings):
    """What each term of the second layer counts for, relative to the others (``terms`` says what each measures). 0
    leaves a term out of the value; it is measured and told all the same.

    ``key_files_edited`` counts for nothing by default: a right fix can stand in another file.
    """

    steps: FiniteFloat = Field(0.3, le=1e6)
    tokens: FiniteFloat = Field(0.1, le=1e6)
    tool_effectiveness: FiniteFloat = Field(0.2, le=1e6)
    patch_size: FiniteFloat = Field(0.1, le=1e6)
    key_files_read: FiniteFloat = Field(0.05, le=1e6)
    key_files_edited: FiniteFloat = Field(0.0, le=1e6)
    compiles: FiniteFloat = Field(0.1, le=1e6)
    lint: FiniteFloat = Field(0.1, le=1e6)
    coverage: FiniteFloat = Field(0.05, le=1e6)

    def shares(self) -> dict[str, float]:
        """Each term's part of the whole second layer; all 0 where nothing counts."""
        weights: dict[str, float] = self.model_dump()
        total = sum(weights.values())
        return {name: weight / total if total else 0.0 for name, weight in weights.items()}


class RewardSettings(Settings):
    """``half``: the value of fixing half of the tests. ``cap``: the most that an unsolved attempt can get.
    ``second_layer``: the most that efficiency and quality take off. ``weights``: how they share it.

    A recipe that could put an attempt above one of better outcome is refused with the two attempts.
    """

    half: FiniteFloat = Field(0.3, ge=0.0)
    cap: FiniteFloat = Field(0.5, ge=0.0)
    second_layer: FiniteFloat = Field(0.05, ge=0.0)
    weights: TermWeights = TermWeights()

    @model_validator(mode="after")
    def _keeps_the_order(self) -> Self:
        proof = proof_against(self)
        if proof:
            raise PydanticCustomError("ordering", "{proof}", {"proof": proof})
        return self


def proof_against(settings: RewardSettings) -> str:
    """Two attempts that the recipe would put in the wrong order, with their numbers; empty where there are none."""
    return _negative_weight(settings) or _solved_below_unsolved(settings) or _half_over_cap(settings)


def _negative_weight(settings: RewardSettings) -> str:
    weights: dict[str, float] = settings.weights.model_dump()
    total = sum(weights.values())
    if min(weights.values()) >= 0:
        return ""
    if not total:
        return "The weights are not all 0 and add up to 0, so that nothing can be shared out by them"
    name, share = min(settings.weights.shares().items(), key=lambda item: item[1])
    paid = 1 - settings.second_layer * share
    return (
        f"weights.{name} is {weights[name]:g} and all weights add up to {total:g}: of two attempts that solve the task "
        f"and are alike in all else, A, the worst in {name}, would get {paid:.4f}, and B, the best in it, 1.0000"
    )


def _solved_below_unsolved(settings: RewardSettings) -> str:
    solved = 1 - settings.second_layer
    highest = partial_value(1.0, settings.half, settings.cap)
    if solved > highest:
        return ""
    for total in _MANY:
        unsolved = partial_value((total - 1) / total, settings.half, settings.cap)
        if unsolved >= solved:
            break
    return (
        f"Attempt A solves the task wastefully and would get 1 - {settings.second_layer:g} = {solved:.4f}; attempt B "
        f"fixes {total - 1} of {total} failing tests, solves nothing, and would get "
        f"min({settings.cap:g}, 2 x {settings.half:g} x {total - 1}/{total}) = {unsolved:.4f}"
    )


def _half_over_cap(settings: RewardSettings) -> str:
    if settings.half <= settings.cap:
        return ""
    return (
        f"Attempt A fixes 3 of 4 failing tests and attempt B 2 of 4: both would get the cap of {settings.cap:g}, which "
        f"is under half = {settings.half:g}, so that more than half earns nothing more"
    )
