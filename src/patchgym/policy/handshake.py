"""What is asked of a server before anything is sampled from it: whether its ids, its tokenizer, its weights and its
log-probabilities are those that training needs."""

import math
from dataclasses import dataclass
from pathlib import Path

from patchgym.errors import ConfigError, EndpointError
from patchgym.policy.tokens import ModelTokens
from patchgym.policy.vllm import Completion, Served, VllmServer
from patchgym.records import Message, Sampling

_TEXT = "def clamp(x):\n    return max(0, x)  # naïve → ½ 数 🙂\n"
_LIKELIEST = 5
_APART, _NEAR = 0.1, 0.25


@dataclass(frozen=True)
class Agreement:
    """What a server agreed to. ``base`` is the name of the model that adapters go on; ``max_context`` counts tokens.

    ``exact`` is whether log-probabilities are those of the distribution sampled from at every temperature and top-p;
    otherwise they are those of the plain softmax. ``fingerprint`` names this set-up of the server, ``software`` its
    version; None where it does not tell.
    """

    base: str
    max_context: int
    exact: bool
    fingerprint: str | None
    software: str | None

    def refuse_other(self, sampling: Sampling) -> None:
        """Refuse to sample where the log-probabilities would be those of another distribution.

        Raises:
            ConfigError: the server reports those of the plain softmax, and ``sampling`` is neither plain nor greedy.
        """
        plain = sampling.temperature == 0 or (sampling.temperature == 1 and sampling.top_p == 1)
        if not (self.exact or plain):
            raise ConfigError(
                "The server's log-probabilities are not those of the distribution sampled from",
                why=f"At temperature {sampling.temperature:g} and top_p {sampling.top_p:g} it reports raw ones.",
                mend="Start vLLM with --logprobs-mode processed_logprobs, or sample at temperature 1 and top_p 1.",
            )


async def shake_hands(server: VllmServer, name: str, tokens: ModelTokens) -> Agreement:
    """Ask the server for what must agree. ``name`` is what the model is called there; where the server does not know
    that name and has one model alone, that one is meant.

    Raises:
        EndpointRetryable: it cannot be reached.
        EndpointError: it does not have the model, or its answers cannot be used token by token.
        ConfigError: its tokenizer, its weights or its log-probabilities are others than those needed.
    """
    base = _chosen(await server.models(), name, server.url)
    if base.max_context is None:
        raise EndpointError(f"{server.url} does not say how long a context of {base.name} may be")
    _refuse_weights(base, tokens)
    await _refuse_tokenizer(server, base.name, tokens)
    plain = await _tried(server, base.name, tokens, 1.0)
    _refuse_text(plain, tokens)
    cool = await _tried(server, base.name, tokens, 0.5)
    return Agreement(
        base=base.name,
        max_context=base.max_context,
        exact=_exact(plain.likeliest, cool.likeliest),
        fingerprint=plain.fingerprint,
        software=await server.software(),
    )


def _chosen(listed: list[Served], name: str, url: str) -> Served:
    bases = [one for one in listed if one.parent is None]
    named = [one for one in bases if one.name == name]
    if named or len(bases) == 1:
        return (named or bases)[0]
    raise EndpointError(
        f"{url} does not have the model {name}",
        why=f"Models there: {', '.join(one.name for one in bases[:20]) or 'none'}.",
        mend="Name one of those, or start the server with --served-model-name.",
    )


def _refuse_weights(base: Served, tokens: ModelTokens) -> None:
    """Where the server's model is a directory that can be seen from here, its weights are compared."""
    seen = tokens.weights is not None and base.root is not None and Path(base.root).is_absolute()
    there = tokens.weights_of(str(base.root)) if seen else None
    if there is not None and there != tokens.weights:
        raise ConfigError(
            f"The server has other weights than {tokens.version}",
            why=f"It loaded {base.root}, whose weights have another hash.",
            mend="Name the model that the server was started with.",
        )


async def _refuse_tokenizer(server: VllmServer, name: str, tokens: ModelTokens) -> None:
    """Ordinary text and an end of turn must be read alike."""
    end = tokens.tokenizer.decode(
        [tokens.encoder.end_of_turn], skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    text = _TEXT + end
    ours = tokens.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=False)
    theirs = await server.encode(name, text)
    if theirs is not None and theirs != ours:
        at = next((at for at, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), len(ours))
        there, here = theirs[at : at + 1], ours[at : at + 1]
        raise _other_tokenizer(f"Of a short text, token {at} is {there} there and {here} here")


def _refuse_text(seen: Completion, tokens: ModelTokens) -> None:
    """What was sampled must decode alike, but for blanks at its ends, which some tokenizers write only inside a text.
    Characters that were cut in the middle tell nothing."""
    ours = tokens.encoder.decode(seen.ids[:-1] if seen.ids[-1] in tokens.stop_ids else seen.ids)
    if "\ufffd" not in ours + seen.text and ours.strip() != seen.text.strip():
        raise _other_tokenizer(f"What it sampled reads {seen.text[:40]!r} there and {ours[:40]!r} here")


def _other_tokenizer(why: str) -> ConfigError:
    return ConfigError(
        "The server has another tokenizer than the one used here",
        why=f"{why}.",
        mend="Name the server's own model, or the place of its tokenizer with --tokenizer DIR.",
    )


async def _tried(server: VllmServer, name: str, tokens: ModelTokens, temperature: float) -> Completion:
    ids = tokens.encoder.encode([Message(role="user", content=_TEXT)])
    return await server.complete(
        name,
        ids,
        Sampling(temperature=temperature, max_tokens=8),
        stop_ids=tokens.stop_ids,
        vocabulary=tokens.vocabulary,
        likeliest=_LIKELIEST,
    )


def _exact(plain: dict[int, float], cool: dict[int, float]) -> bool:
    """Whether a temperature of 0.5 shows in log-probabilities: their differences are then twice those at 1.

    Raises:
        ConfigError: they are no log-probabilities at all, or follow the temperature in another way.
    """
    if any(one > 1e-4 for one in plain.values()) or sum(map(math.exp, plain.values())) > 1.001:
        raise ConfigError(
            "The server reports logits where log-probabilities are needed",
            why=f"The likeliest {len(plain)} have a probability of more than 1 together.",
            mend="Start vLLM with --logprobs-mode processed_logprobs.",
        )
    both = sorted(plain.keys() & cool.keys(), key=lambda one: plain[one])
    apart = plain[both[-1]] - plain[both[0]] if both else 0.0
    if apart < _APART:
        return False  # too flat to tell: taken for the plain softmax, which at temperature 1 is the same
    ratio = (cool[both[-1]] - cool[both[0]]) / apart
    if abs(ratio - 2) > _NEAR and abs(ratio - 1) > _NEAR:
        raise ConfigError(
            "The server's log-probabilities follow the temperature in a way that is not known",
            why=f"Halving it multiplied their differences by {ratio:.2f}, not by 2.",
            mend="Start vLLM 0.10.2 or later with --logprobs-mode processed_logprobs.",
        )
    return abs(ratio - 2) <= _NEAR
