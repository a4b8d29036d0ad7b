"""A language model with a LoRA adapter, as an update sees it.

The head (the largest matrix of a small model) runs only where the next id is trained, and what several rows begin
with is read once for all of them (``packed``); both give the numbers of the plain way. Everything is in eval mode: no
dropout anywhere, so that trainer and sampler see one policy.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import peft
import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from patchgym.errors import ConfigError
from patchgym.policy.chat import Tokenizer


@dataclass(frozen=True)
class AdaptedModel:
    """A frozen base under a trainable float32 adapter.

    ``body`` maps ids to last hidden states, ``head`` those to logits. ``version`` is that of the weights as loaded,
    ``step`` the number of updates that led to them, ``base`` the model to load underneath, ``max_context`` the
    longest row that the model can read, ``trained_on`` the tasks in its weights (see ``CheckpointInfo``).
    """

    peft_model: peft.PeftModel
    body: nn.Module
    head: nn.Linear
    tokenizer: Tokenizer
    version: str
    step: int
    base: str
    max_context: int
    trained_on: Mapping[str, tuple[str, ...]]

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.head.weight.device

    @property
    def vocabulary(self) -> int:
        """How many ids the model knows, from 0."""
        return self.head.out_features

    def read(
        self,
        ids_BT: Tensor,
        cache: DynamicCache | None = None,
        mask_B1TS: Tensor | None = None,
        positions_BT: Tensor | None = None,
    ) -> Tensor:
        """Last hidden states, shape BTD, of ids behind what ``cache`` holds already; they are added to it.
        ``mask_B1TS`` is True where an id may look, ``positions_BT`` where it stands; without them the ids follow each
        other."""
        # By position: transformers is renaming the argument of the cache.
        read = self.body(ids_BT, mask_B1TS, positions_BT, cache, use_cache=cache is not None)
        hidden_BTD: Tensor = read.last_hidden_state
        return hidden_BTD

    def parameters(self) -> list[nn.Parameter]:
        """The trainable parameters, all of the adapter, in a fixed order."""
        return [parameter for parameter in self.peft_model.parameters() if parameter.requires_grad]


def contents(layer: object) -> tuple[Tensor, Tensor]:
    """Keys and values of one layer of a cache.

    Raises:
        ConfigError: the model keeps something else.
    """
    if not isinstance(layer, DynamicLayer) or layer.keys is None or layer.values is None:
        raise untrainable(f"it keeps a {type(layer).__name__} where keys and values were expected")
    return layer.keys, layer.values


def untrainable(why: str) -> ConfigError:
    """The error of a model that cannot be trained, with the reason."""
    return ConfigError(
        "This model cannot be trained here",
        why=f"{why[:1].upper()}{why[1:]}.",
        mend="Use a model of another architecture (Llama, Qwen2, Mistral, ...).",
    )
