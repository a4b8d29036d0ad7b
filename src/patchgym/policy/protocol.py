"""The policy contract: messages in, one sampled message out."""

from collections.abc import Sequence
from typing import Protocol

from patchgym.records import Message, Sample, Sampling, ToolSpec


class Policy(Protocol):
    """Something that samples the next message of a conversation.

    ``version`` names exactly what sampled: a checkpoint's content id, or what an endpoint calls its model.
    ``native_tools`` says whether it takes tool specifications and answers with tool calls; others get the plain-text
    protocol in the system prompt.
    """

    version: str
    native_tools: bool

    async def sample(self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling) -> Sample:
        """Sample one assistant message. Token ids and log-probs, where given, are those of the sampling itself.

        Raises:
            ContextLengthError: the conversation does not fit the model.
            EndpointError: the model could not be asked, or its answer is no answer.
        """
        ...
