"""A language model as an update sees it: a base under a LoRA adapter, or all its weights.

The head (the largest matrix of a small model) runs only where the next id is trained, and what several rows begin
with is read once for all of them (``packed``); both give the numbers of the plain way. Everything is in eval mode: no
dropout anywhere, so that trainer and sampler see one policy.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import peft
import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from patchgym.errors import ConfigError
from patchgym.policy.chat import Tokenizer
from patchgym.train.masters import Masters


@dataclass(frozen=True)
class AdaptedModel:
    """A frozen base under a trainable float32 adapter, or a model whose weights are all trained.

    ``network`` is all of it; of that, ``body`` maps ids to last hidden states, ``head`` those to logits. ``version`` is
    that of the weights as loaded, ``step`` the number of updates that led to them, ``base`` the model that they began
    as, ``max_context`` the longest row that the model can read, ``trained_on`` the tasks in its weights (see
    ``CheckpointInfo``). ``value_head`` maps last hidden states to the value of the state, in rewards, where an update
    needs values; with ``values_into_body`` its loss moves the body as well. ``masters`` are there where weights that
    compute in bfloat16 are all trained. ``load_reference`` reads the base again, without gradients.
    """

    network: PreTrainedModel | peft.PeftModel
    body: nn.Module
    head: nn.Linear
    tokenizer: Tokenizer
    version: str
    step: int
    base: str
    max_context: int
    trained_on: Mapping[str, tuple[str, ...]]
    value_head: nn.Linear | None = None
    values_into_body: bool = True
    masters: Masters | None = None
    load_reference: "Callable[[], AdaptedModel] | None" = None

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.head.weight.device

    @property
    def vocabulary(self) -> int:
        """How many ids the model knows, from 0."""
        return self.head.out_features

    @property
    def peft_model(self) -> peft.PeftModel:
        """The model with its adapter.

        Raises:
            ConfigError: it has none, because all weights are trained.
        """
        if not isinstance(self.network, peft.PeftModel):
            raise ConfigError(f"{self.version} has no adapter", why="All its weights are trained.")
        return self.network

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

    def trainable(self) -> dict[str, nn.Parameter]:
        """What an optimizer moves, by name, in a fixed order and in float32 (the value head last)."""
        if self.masters is not None:
            found = dict(self.masters.parameters)
        else:
            found = {name: part for name, part in self.network.named_parameters() if part.requires_grad}
        values = self.value_head.named_parameters() if self.value_head is not None else ()
        return found | {f"value_head.{name}": part for name, part in values}

    def parameters(self) -> list[nn.Parameter]:
        """The same without names."""
        return list(self.trainable().values())

    def moved(self) -> None:
        """To be called when an optimizer has moved the parameters: weights that are copies of them follow."""
        if self.masters is not None:
            self.masters.hand_down()

    @contextmanager
    def reference(self) -> "Iterator[AdaptedModel]":
        """The base, to read with and not to train: this model with its adapter off. Where all weights are trained, the
        base is loaded beside them and dropped at the end of the block.

        Raises:
            ConfigError: all weights are trained, and nothing says where the base is.
        """
        if isinstance(self.network, peft.PeftModel):
            with self.network.disable_adapter():
                yield self
            return
        if self.load_reference is None:
            raise ConfigError("There is no base to compare with", mend='Set reference to "start", or kl to 0.')
        yield self.load_reference()


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
