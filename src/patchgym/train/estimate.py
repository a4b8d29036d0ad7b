"""What an update would read, hold and take, before any weight is loaded.

Counts of rows and ids are exact. Bytes of weights, gradients and optimizer are exact for models of the Llama family
(Llama, Qwen2, Mistral, SmolLM2: gated MLP, grouped attention); those of activations and the time are estimates, by the
formulas at the functions that compute them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from patchgym.config import Settings
from patchgym.records import Record
from patchgym.train.report import PolicyGradientSettings, TrainSettings
from patchgym.train.rows import RowSet, TokenRow

if TYPE_CHECKING:
    from patchgym.train.trie import Chunk, Trie

_BYTES = {"float32": 4, "bfloat16": 2}
_MOST_LOGITS = 1 << 26  # as in packed
_LINEAR = 7  # matrices of a layer that an adapter is put on


class ModelShape(Settings):
    """What a model's config says of its size. ``head`` is the width of one attention head (None: ``hidden`` by
    ``heads``); ``biases`` whether queries, keys and values have some; ``context`` the most ids of a row."""

    hidden: int = Field(ge=1)
    layers: int = Field(ge=1)
    heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    intermediate: int = Field(ge=1)
    vocabulary: int = Field(ge=1)
    tied: bool = False
    biases: bool = False
    head: int | None = None
    context: int = Field(default=32768, ge=1)

    @property
    def attention(self) -> int:
        """Width of all queries of an id."""
        return self.heads * self.head_width

    @property
    def keys(self) -> int:
        """Width of all keys of an id."""
        return self.kv_heads * self.head_width

    @property
    def head_width(self) -> int:
        """Width of one head."""
        return self.head or self.hidden // self.heads

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer: four matrices of attention, three of the MLP, two norms, perhaps biases."""
        matrices = 2 * self.hidden * (self.attention + self.keys) + 3 * self.hidden * self.intermediate
        return matrices + 2 * self.hidden + (self.attention + 2 * self.keys if self.biases else 0)

    @property
    def parameters(self) -> int:
        """All weights."""
        embedding = self.vocabulary * self.hidden
        return self.layers * self.layer_parameters + embedding * (1 if self.tied else 2) + self.hidden

    def adapter_parameters(self, rank: int, layers: int | None) -> int:
        """Weights of a LoRA adapter: ``rank * (in + out)`` for each matrix."""
        wide = 2 * (self.hidden + self.attention) + 2 * (self.hidden + self.keys)
        wide += 3 * (self.hidden + self.intermediate)
        return rank * wide * (layers or self.layers)


class Expected(Settings):
    """Rows that are not there yet: ``groups`` groups of ``samples`` rows that share ``prompt`` ids, and have ``turns``
    turns of ``sampled`` trained and ``observed`` other ids each."""

    groups: int = Field(ge=1)
    samples: int = Field(default=8, ge=1)
    prompt: int = Field(ge=1)
    turns: int = Field(ge=1)
    sampled: int = Field(ge=1)
    observed: int = Field(default=0, ge=0)


class Machine(Settings):
    """The machine that is meant: ``devices`` of ``memory_gb`` GB (10^9 bytes) each, and how fast it is: measured
    ``tokens_per_second`` (trained ids, all devices together), or ``tflops`` of one device, of which the share
    ``utilisation`` is reached. Without either there is no estimate of time. ``dtype`` is that of the base's weights and
    of activations."""

    name: str = ""
    devices: int = Field(default=1, ge=1)
    memory_gb: float | None = Field(default=None, gt=0)
    tokens_per_second: float | None = Field(default=None, gt=0)
    tflops: float | None = Field(default=None, gt=0)
    utilisation: float = Field(default=0.4, gt=0, le=1)
    dtype: Literal["float32", "bfloat16"] = "float32"


class Estimate(Record):
    """What an update comes to. Ids are counted over all its steps, again in each pass; ``read_tokens`` counts what rows
    of a step share once, as the trainer reads it. Bytes are of one device; ``fits`` is None where its memory is not
    stated, ``seconds`` where its speed is not."""

    rows: int
    left_out: dict[str, int]
    groups: int
    zero_variance_groups: int
    steps: int
    total_tokens: int
    read_tokens: int
    trained_tokens: int
    longest_row: int
    parameters: int
    trainable_parameters: int
    weight_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    activation_bytes: int
    logit_bytes: int
    total_bytes: int
    fits: bool | None
    flops: float
    seconds: float | None


def expected_rows(expected: Expected, settings: TrainSettings) -> RowSet:
    """Rows of these lengths with made-up ids: only what is shared and what is trained is meant."""
    rows, fresh = [], 1
    for group in range(expected.groups):
        prompt = list(range(fresh, fresh + expected.prompt))
        fresh += expected.prompt
        for sample in range(expected.samples):
            ids, trainable, turns = list(prompt), [0] * expected.prompt, [-1] * expected.prompt
            for turn in range(expected.turns):
                count = expected.sampled + expected.observed
                ids += range(fresh, fresh + count)
                fresh += count
                trainable += [1] * expected.sampled + [0] * expected.observed
                turns += [turn] * expected.sampled + [-1] * expected.observed
            zeros = (0.0,) * len(ids)
            rows.append(TokenRow(tuple(ids), tuple(trainable), zeros, tuple(turns), f"{group}.{sample}", f"{group}"))
    kept = tuple(row for row in rows if len(row.ids) <= settings.max_row_tokens)
    made = RowSet(rows=kept, groups=expected.groups if isinstance(settings, PolicyGradientSettings) else 0)
    if len(kept) < len(rows):
        from patchgym.train.reasons import Reason

        made.left_out[Reason.TOO_LONG] = len(rows) - len(kept)
    return made


def estimate(rows: RowSet, shape: ModelShape, settings: TrainSettings, machine: Machine) -> Estimate:
    """What an update on these rows comes to. Rows that the model's context does not hold are left out."""
    from patchgym.train.reasons import Reason
    from patchgym.train.trainer import schedule
    from patchgym.train.trie import build_trie, cut

    left_out, fitting = rows.left_out.copy(), [row for row in rows.rows if len(row.ids) <= shape.context]
    left_out[Reason.TOO_LONG] += len(rows.rows) - len(fitting)
    plan = schedule(fitting, settings)
    split = settings.micro_batch_tokens if settings.recompute else None
    read = held = chunk = seen = 0
    for step in plan:
        trie = build_trie([row.ids[:-1] for row in step], split)
        chunks = cut(trie, settings.micro_batch_tokens)
        sizes = [sum(len(trie.segments[at].ids) for at in one.segments) for one in chunks]
        read += trie.size
        chunk = max([chunk, *sizes])
        held = max([held, *(sizes if settings.recompute else _on_path(trie, chunks, sizes))])
        seen = max([seen, *(len(row.ids) for row in step)])
    trainable = shape.adapter_parameters(settings.lora_rank, settings.lora_layers)
    width, shards = _BYTES[machine.dtype], machine.devices
    parts = {
        "weight_bytes": (shape.parameters * width + trainable * 4) // shards,
        "gradient_bytes": trainable * 4 // shards,
        "optimizer_bytes": trainable * 8 // shards,
        "activation_bytes": _activations(shape, settings, held, seen, width),
        "logit_bytes": 3 * 4 * min(chunk * shape.vocabulary, max(_MOST_LOGITS, shape.vocabulary)),
    }
    trained = sum(row.trained for step in plan for row in step)
    flops = _flops(shape, settings, read, seen)
    total = sum(parts.values())
    return Estimate(
        rows=len(fitting),
        left_out={reason.value: count for reason, count in sorted(left_out.items()) if count},
        groups=rows.groups,
        zero_variance_groups=rows.zero_variance_groups,
        steps=len(plan),
        total_tokens=sum(len(row.ids) for step in plan for row in step),
        read_tokens=read,
        trained_tokens=trained,
        longest_row=seen,
        parameters=shape.parameters,
        trainable_parameters=trainable,
        **parts,
        total_bytes=total,
        fits=None if machine.memory_gb is None else total <= machine.memory_gb * 1e9,
        flops=flops,
        seconds=_seconds(machine, trained, flops),
    )


def _on_path(trie: "Trie", chunks: "Sequence[Chunk]", sizes: Sequence[int]) -> list[int]:
    """For each chunk the ids of it and of all that it continues: their activations are held at once."""
    home = {segment: at for at, one in enumerate(chunks) for segment in one.segments}
    found: list[int] = []
    for at, one in enumerate(chunks):
        found.append(sizes[at] + (found[home[one.after]] if one.after is not None else 0))
    return found


def _activations(shape: ModelShape, settings: TrainSettings, held: int, seen: int, width: int) -> int:
    """Bytes that the backward pass needs of ``held`` ids, and keys and values with their gradients of ``seen``.

    Of an id in an adapted layer: its two residual and two normed states and the two outputs that are added (6 hidden),
    queries twice and keys and values twice (before and after they are turned), what attention gives (1), four states of
    the MLP, and one of the rank for each of seven matrices (in float32). Layers below the lowest adapted one keep none.
    """
    of_layer = width * (6 * shape.hidden + 3 * shape.attention + 4 * shape.keys + 4 * shape.intermediate)
    of_layer += 4 * _LINEAR * settings.lora_rank
    layers = min(settings.lora_layers or shape.layers, shape.layers)
    return held * layers * of_layer + seen * shape.layers * 4 * shape.keys * width


def _flops(shape: ModelShape, settings: TrainSettings, read: int, seen: int) -> float:
    """Twice the weights for each id forwards, as much again backwards through the adapted layers (the base itself has
    no gradients), as much again where ``recompute`` reads twice; attention over half of the longest row for each id,
    twice (scores and values) forwards and four times backwards."""
    layers = min(settings.lora_layers or shape.layers, shape.layers)
    forwards = 2.0 * (shape.layers * shape.layer_parameters + shape.vocabulary * shape.hidden)
    forwards += 2.0 * shape.layers * 2 * shape.attention * seen / 2
    backwards = 2.0 * (layers * shape.layer_parameters + shape.vocabulary * shape.hidden)
    backwards += 2.0 * layers * 4 * shape.attention * seen / 2
    return read * (forwards * (2 if settings.recompute else 1) + backwards)


def _seconds(machine: Machine, trained: int, flops: float) -> float | None:
    if machine.tokens_per_second is not None:
        return trained / machine.tokens_per_second
    if machine.tflops is not None:
        return flops / (machine.tflops * 1e12 * machine.utilisation * machine.devices)
    return None
