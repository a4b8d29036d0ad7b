"""float32 masters of weights that compute in bfloat16.

bfloat16 keeps 8 bits of a number: a step of less than about 1/256 of a weight rounds to nothing, and policy gradients
take such steps all the time. So the optimizer moves a float32 copy, and the weights follow it, rounded. Gradients of
all chunks of a step are added up in float32 as well.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


class Masters:
    """``parameters`` are the masters, by the name of the weight that each stands for. They have the gradients."""

    def __init__(self, network: nn.Module) -> None:
        """Takes the float32 weights of ``network`` as masters, and leaves it bfloat16 ones in their place. Its buffers
        stay as they are: the frequencies of rotary positions must not be rounded."""
        self.parameters: dict[str, nn.Parameter] = {}
        self._weights = dict(network.named_parameters())
        for name, weight in self._weights.items():
            master = nn.Parameter(weight.detach().float())
            weight.data = weight.detach().to(torch.bfloat16)
            follow: Any = weight.register_post_accumulate_grad_hook  # torch gives it no types
            follow(partial(_hand_up, master))
            self.parameters[name] = master

    def hand_down(self) -> None:
        """Round the masters into the weights."""
        with torch.no_grad():
            for name, weight in self._weights.items():
                weight.copy_(self.parameters[name])


def _hand_up(master: nn.Parameter, weight: Tensor) -> None:
    """Add a weight's gradient to its master's, as soon as it is whole."""
    assert weight.grad is not None
    if master.grad is None:
        master.grad = weight.grad.float()
    else:
        master.grad += weight.grad
    weight.grad = None
