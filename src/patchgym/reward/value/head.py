"""The larger option: a head on a language model's hidden states, which reads what the attempt says and was shown.

The attempt is one text. Where the text of a step ends, the model's last hidden state goes through the head:
standardised, then one linear layer, then the calibration. The language model stays as it is; its states are computed
once, and the head is fitted on folds of tasks as the boosted model is. On disk it is a folder::

    head.json           what it is: the language model with its version, the calibration, where it comes from
    head.safetensors    the weights of the head alone; head.json holds their SHA-256
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

from patchgym.content import disk_errors
from patchgym.errors import DataError
from patchgym.records import Limits, Step, VersionedRecord
from patchgym.reward.value.fit import FitSettings, Scored, calibrated_apart, check_paths, one_sided, task_folds
from patchgym.reward.value.labels import LabelledPath
from patchgym.reward.value.model import Calibration, FittedOn, Reference, check_hash, levelled

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from patchgym.policy.models import LoadedModel

_CARD, _WEIGHTS = "head.json", "head.safetensors"
_MESSAGE = 1200
_SHOWN = 800
_DECAY = 1e-2
_NAMES = ("mean_D", "scale_D", "weight_D", "bias")


class HeadCard(VersionedRecord):
    """``head.json``: everything but the weights."""

    VERSION: ClassVar[int] = 1

    schema_version: int = 1
    kind: Literal["head"] = "head"
    base: str
    """The language model, as it is named or where it lies."""
    base_version: str
    """Exactly which weights it has."""
    width: int
    """Numbers in one hidden state."""
    weights_sha256: str
    """Of the file beside it."""
    calibration: Calibration
    levels: int
    reference: Reference
    fitted_on: FittedOn


class ValueHead:
    """A head with the language model under it."""

    def __init__(self, card: HeadCard, weights: Mapping[str, "Tensor"], body: "LoadedModel") -> None:
        self.card, self._weights, self._body = card, weights, body

    @property
    def hash(self) -> str:
        """SHA-256 (hex) of the card, which holds that of the weights and the version of the model underneath."""
        return self.card.content_hash()

    @property
    def reference(self) -> Reference:
        """What its scores were like where it was fitted."""
        return self.card.reference

    @property
    def fitted_on(self) -> FittedOn:
        """Where it comes from."""
        return self.card.fitted_on

    def values(self, steps: Sequence[Step], limits: Limits | None = None) -> list[float]:
        """After each step, how likely the attempt is to solve its task. ``limits`` are not looked at."""
        raw_T = _raw(hidden_states(self._body, steps), self._weights)
        return [levelled(self.card.calibration.probability(raw), self.card.levels) for raw in raw_T.tolist()]

    def value(self, steps: Sequence[Step], limits: Limits) -> float:
        """The same after the last of the steps."""
        return self.values(steps, limits)[-1]

    def save(self, path: Path) -> None:
        """Write the folder.

        Raises:
            StorageError: the disk refuses.
        """
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            (path / _WEIGHTS).write_bytes(_packed(self._weights))
            (path / _CARD).write_text(self.card.to_line() + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path, expected: str = "") -> Self:
        """Read a saved head and the language model under it; ``expected`` is the hash that it must have (empty: any).

        Raises:
            DataError: it is no head, its weights or the model underneath are others, or its hash is another.
            PrerequisiteError: the train extra is not installed.
            UsageError: the language model is gone.
        """
        if not (path / _CARD).is_file() or not (path / _WEIGHTS).is_file():
            raise DataError(f"There is no value head in {path}", why=f"It holds no {_CARD} with {_WEIGHTS}.")
        card = HeadCard.from_line((path / _CARD).read_bytes(), where=str(path / _CARD))
        packed = (path / _WEIGHTS).read_bytes()
        found = hashlib.sha256(packed).hexdigest()
        check_hash(path / _WEIGHTS, found, card.weights_sha256)
        check_hash(path, card.content_hash(), expected)
        body = _loaded(card.base)
        check_hash(Path(card.base), body.version, card.base_version)
        return cls(card, _unpacked(packed, card.width, path / _WEIGHTS), body)


def fit_head(
    paths: Sequence[LabelledPath], base: str, settings: FitSettings, runs: Sequence[str] = ()
) -> tuple[ValueHead, list[Scored]]:
    """Fit a head on the language model ``base`` (a known name, a folder or a checkpoint), calibrate and measure it as
    ``fit`` does.

    Raises:
        PrerequisiteError: the train or the value extra is not installed.
        DataError: attempts at fewer than two tasks, or all of one outcome.
        UsageError: there is no such language model.
    """
    check_paths(paths)
    body = _loaded(base)
    states = [hidden_states(body, path.steps) for path in paths]
    folds = task_folds([path.task_id for path in paths], settings.folds, settings.seed)
    raw: dict[int, list[float]] = {}
    for fold in sorted(set(folds)):
        inside = [at for at, found in enumerate(folds) if found != fold]
        if len({paths[at].outcome for at in inside}) < 2:
            raise one_sided("in all tasks but those of one fold")
        part = _logistic([states[at] for at in inside], [paths[at] for at in inside])
        for at, found in enumerate(folds):
            if found == fold:
                raw[at] = _raw(states[at], part).tolist()
    calibration, reference, held_out = calibrated_apart(paths, raw, folds, settings)
    weights = _logistic(states, paths)
    card = HeadCard(
        base=base,
        base_version=body.version,
        width=states[0].shape[1],
        weights_sha256=hashlib.sha256(_packed(weights)).hexdigest(),
        calibration=calibration,
        levels=settings.levels,
        reference=reference,
        fitted_on=FittedOn.of(paths, runs, settings.model_dump(mode="json")),
    )
    return ValueHead(card, weights, body), held_out


def step_texts(steps: Sequence[Step]) -> list[str]:
    """What each step adds to the attempt's text: what the model said, and what it was shown for it, each cut to its two
    ends where it is long. What was asked at the beginning is not in it: it tells tasks apart, not attempts."""
    return [
        f"<agent>\n{_ends(step.message.content, _MESSAGE)}\n<shown>\n"
        f"{_ends(step.observation.shown, _SHOWN) if step.observation is not None else ''}\n"
        for step in steps
    ]


def hidden_states(body: "LoadedModel", steps: Sequence[Step]) -> "Tensor":
    """The last hidden state where each step's text ends, shape TD for T steps. What no longer fits the model's context
    is left out from the front: a step is read with at least half of the context before it, where there is so much."""
    import torch

    encoded = [
        body.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True) for text in step_texts(steps)
    ]
    limit = body.max_context
    ids = [one for part in encoded for one in part]
    ends = [sum(len(part) for part in encoded[: at + 1]) for at in range(len(encoded))]
    rows: list[Tensor] = []
    start = 0
    while len(rows) < len(ends):
        first = len(rows)
        if ends[first] > start + limit:
            start = ends[first] - (limit if len(encoded[first]) > limit // 2 else limit // 2 + len(encoded[first]))
        inside = [end for end in ends[first:] if end <= start + limit]
        with torch.no_grad():
            output = _text_model(body.model)(input_ids=torch.tensor([ids[start : inside[-1]]]))
        hidden_LD = output.last_hidden_state[0].float()
        rows += [hidden_LD[end - start - 1] for end in inside]
    return torch.stack(rows)


def _text_model(model: "torch.nn.Module") -> Any:
    """The part of a causal model that ends in hidden states."""
    return cast("Any", model).base_model


def _logistic(states: Sequence["Tensor"], paths: Sequence[LabelledPath]) -> dict[str, "Tensor"]:
    """Logistic regression with weight decay on standardised states, by L-BFGS: the same from run to run."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits

    known = [[label is not None for label in path.labels] for path in paths]
    x_ND = torch.cat([state_TD[torch.tensor(keep)] for state_TD, keep in zip(states, known, strict=True)]).double()
    y_N = torch.tensor([label for path in paths for label in path.labels if label is not None], dtype=torch.float64)
    mean_D, scale_D = x_ND.mean(0), x_ND.std(0).clamp_min(1e-6)
    z_ND = (x_ND - mean_D) / scale_D
    weight_D = torch.zeros(z_ND.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight_D, bias], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> "Tensor":
        optimiser.zero_grad()
        value = binary_cross_entropy_with_logits(z_ND @ weight_D + bias, y_N) + _DECAY * (weight_D**2).sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    return {
        "mean_D": mean_D.float(),
        "scale_D": scale_D.float(),
        "weight_D": weight_D.detach().float(),
        "bias": bias.detach().float(),
    }


def _raw(states_TD: "Tensor", weights: Mapping[str, "Tensor"]) -> "Tensor":
    """The raw scores (log-odds), shape T."""
    z_TD = (states_TD - weights["mean_D"]) / weights["scale_D"]
    return z_TD @ weights["weight_D"] + weights["bias"]


def _packed(weights: Mapping[str, "Tensor"]) -> bytes:
    from safetensors.torch import save

    return save({name: weights[name].contiguous() for name in _NAMES})


def _unpacked(packed: bytes, width: int, path: Path) -> dict[str, "Tensor"]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        weights = load(packed)
    except SafetensorError as error:
        raise DataError(f"{path} is no safetensors file", why=str(error)) from error
    sizes = {name: tuple(found.shape) for name, found in weights.items()}
    if sizes != {"mean_D": (width,), "scale_D": (width,), "weight_D": (width,), "bias": (1,)}:
        raise DataError(f"{path} holds other weights than a head's", why=f"It has {sizes}.")
    return weights


def _loaded(base: str) -> "LoadedModel":
    from patchgym.policy.models import load_model

    return load_model(base)


def _ends(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size // 2]}\n...\n{text[-size // 2 :]}"
