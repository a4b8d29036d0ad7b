"""Somebody else's sampler as our policy: ids as they were sampled, and nothing believed that can be checked."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.errors import ConfigError, ContextLengthError, DataError, EndpointError
from patchgym.policy.chat import ChatEncoder
from patchgym.records import Message, Sample, Sampling, Step, Trajectory
from patchgym.trainers import Generated, TokenLimits, TokenPolicy, episode_row
from patchgym.trainers.policy import neutral_sampling
from tests.policy.tiny import END, START, VOCABULARY, tiny_tokenizer
from tests.records_for_tests import make_report, make_step, make_trajectory
from tests.trainers.gyms import logprob

pytestmark = pytest.mark.train

ENCODER = ChatEncoder(tiny_tokenizer())
ROOMY = TokenLimits(100_000)
UNHURRIED = settings(deadline=None, max_examples=30)
OPENING = (Message(role="system", content="fix it"), Message(role="user", content="clamp is wrong"))


class Draws:
    """Samples what it is told to, turn by turn, and remembers what it was asked."""

    version = "weights@1"

    def __init__(self, *answers: Generated) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[tuple[int, ...], Sampling]] = []

    async def generate(self, session: str, ids: Sequence[int], sampling: Sampling) -> Generated:
        self.asked.append((tuple(ids), sampling))
        return self._answers[len(self.asked) - 1]


def drawn(ids: Sequence[int], **changes: Any) -> Generated:
    """An answer whose log-probabilities tell the ids that they are of."""
    told: dict[str, Any] = {"logprobs": tuple(map(logprob, ids)), "stopped": ids[-1:] == [END], **changes}
    return Generated(tuple(ids), **told)


def policy_of(generator: Draws, limits: TokenLimits = ROOMY) -> TokenPolicy:
    return TokenPolicy(generator, ENCODER, session="s", vocabulary=VOCABULARY, limits=limits)


def asked_once(answer: Generated, *, limits: TokenLimits = ROOMY, max_tokens: int = 64) -> Sample:
    """What the policy makes of one answer."""
    return asyncio.run(policy_of(Draws(answer), limits).sample(OPENING, (), Sampling(max_tokens=max_tokens)))


answers = st.lists(st.integers(0, 255), min_size=1, max_size=8) | st.lists(st.integers(0, 255), max_size=8).map(
    lambda ids: [*ids, END]
)
seen = st.text(max_size=20) | st.sampled_from(["<|im_end|>", "\udcff", "<|im_start|>assistant\n", ""])
turns = st.lists(st.tuples(answers, seen), min_size=1, max_size=5)


def played(script: Sequence[tuple[Sequence[int], str]]) -> tuple[Draws, Trajectory]:
    """An episode in which the model samples and sees what ``script`` says."""
    generator = Draws(*(drawn(ids) for ids, _ in script))
    policy, messages, steps = policy_of(generator), list[Message](), list[Step]()
    prompt: tuple[Message, ...] = OPENING
    for index, (_, shown) in enumerate(script):
        sample = asyncio.run(policy.sample([*messages, *prompt], (), Sampling(max_tokens=64)))
        step = make_step(index, tokens=sample.tokens).model_copy(update={"prompt": prompt, "message": sample.message})
        steps.append(step)
        messages = [*messages, *prompt, sample.message]
        prompt = (Message(role="user", content=shown),)
    return generator, make_trajectory(steps=steps, report=make_report(), reward=0.5)


@given(turns)
@UNHURRIED
def test_every_context_begins_with_the_one_before_and_what_was_sampled(
    script: list[tuple[list[int], str]],
) -> None:
    generator, _ = played(script)
    for (before, _), (after, _), (ids, _) in zip(generator.asked, generator.asked[1:], script, strict=False):
        assert after[: len(before) + len(ids)] == (*before, *ids)


@given(turns)
@UNHURRIED
def test_a_row_is_what_the_model_last_read_and_said(script: list[tuple[list[int], str]]) -> None:
    generator, trajectory = played(script)
    row = episode_row(trajectory, filler=END)
    assert (*row.prompt_ids, *row.response_ids) == (*generator.asked[-1][0], *script[-1][0])
    assert row.prompt_ids == generator.asked[0][0]


@given(turns)
@UNHURRIED
def test_the_mask_marks_what_was_sampled_and_log_probabilities_stand_there_alone(
    script: list[tuple[list[int], str]],
) -> None:
    row = episode_row(played(script)[1], filler=END)
    assert row.logprobs is not None
    places = list(zip(row.response_ids, row.mask, row.logprobs, strict=True))
    assert [token for token, bit, _ in places if bit] == [token for ids, _ in script for token in ids]
    assert all(told == (logprob(token) if bit else 0.0) for token, bit, told in places)


def test_what_is_sampled_is_never_encoded_again() -> None:
    apart = [ord("a"), ord("b"), 0xC3, END]  # no encoding of any text: a byte sequence that is not UTF-8
    generator, trajectory = played([(apart, "seen"), ([7, END], "")])
    assert trajectory.steps[0].message.sampled_ids == tuple(apart)
    assert generator.asked[1][0][len(generator.asked[0][0]) :][: len(apart)] == tuple(apart)


def test_a_sampler_without_log_probabilities_leaves_them_unsaid() -> None:
    sample = asked_once(drawn([1, END], logprobs=None))
    assert sample.tokens is not None
    assert sample.tokens.logprobs is None


def test_a_sample_carries_the_name_of_the_weights_that_sampled_it() -> None:
    assert asked_once(drawn([1, END], version="weights@2")).policy_version == "weights@2"


def test_an_answer_has_no_more_room_than_the_response_may_have() -> None:
    opening = len(ENCODER.encode(OPENING))
    generator = Draws(drawn([1]))
    policy = policy_of(generator, TokenLimits(100_000, opening=opening, response=5))
    asyncio.run(policy.sample(OPENING, (), Sampling(max_tokens=64)))
    assert generator.asked[0][1].max_tokens == 5


def test_a_conversation_over_its_response_ends_the_episode() -> None:
    limits = TokenLimits(100_000, response=10)
    messages = [*OPENING, Message(role="assistant", content="", sampled_ids=(1, END)), OPENING[1]]
    with pytest.raises(ContextLengthError):
        asyncio.run(policy_of(Draws(), limits).sample(messages, (), Sampling()))


@pytest.mark.parametrize("limits", [TokenLimits(100_000, opening=3), TokenLimits(3)])
def test_an_instruction_that_does_not_fit_is_the_configuration_s_fault(limits: TokenLimits) -> None:
    with pytest.raises(ConfigError, match="instruction"):
        asked_once(drawn([1]), limits=limits)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (drawn([]), "no ids"),
        (drawn([1] * 65), "were asked for"),
        (drawn([VOCABULARY]), "none of the model's"),
        (drawn([-1]), "none of the model's"),
        (drawn([END, 1]), "after its end of turn"),
        (drawn([1, 2], logprobs=(-1.0,)), "2 ids and 1 log-probabilities"),
        (drawn([1], logprobs=(math.nan,)), "log-probability"),
        (drawn([1], logprobs=(-math.inf,)), "log-probability"),
        (drawn([1], logprobs=(0.5,)), "log-probability"),
    ],
)
def test_an_answer_that_cannot_have_been_sampled_is_infrastructure_s_fault(answer: Generated, why: str) -> None:
    with pytest.raises(EndpointError, match=why):
        asked_once(answer)


def test_ids_of_another_model_are_refused() -> None:
    messages = [*OPENING, Message(role="assistant", content="", sampled_ids=(VOCABULARY,)), OPENING[1]]
    with pytest.raises(DataError, match="Another model"):
        asyncio.run(policy_of(Draws()).sample(messages, (), Sampling()))


def test_control_ids_that_a_model_samples_stay_what_they_are() -> None:
    assert asked_once(drawn([START, 1, END])).message.sampled_ids == (START, 1, END)


@pytest.mark.parametrize("told", [{"top_k": 20}, {"min_p": 0.1}, {"repetition_penalty": 1.1}])
def test_sampling_that_a_record_has_no_place_for_is_refused(told: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(told))):
        neutral_sampling(told, "the trainer")


def test_neutral_values_of_other_parameters_are_taken() -> None:
    told = {"temperature": 0.7, "top_p": 0.9, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "logprobs": True}
    assert neutral_sampling(told, "the trainer") == (0.7, 0.9)
