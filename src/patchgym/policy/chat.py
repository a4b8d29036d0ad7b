"""Conversations as token ids, exactly: what was sampled stays as sampled, and data never turns into control tokens.

A chat template is used for its *frames* alone: the control text that it puts around a message of a given role at a
given place. Frames, contents and sampled ids are turned into ids apart from each other and only ever appended, so that
a later context always starts with the earlier one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from patchgym.errors import ConfigError
from patchgym.records import Message, Sample, StepTokens, Usage

_MARK = "\ue000\ue001\ue000"


class Tokenizer(Protocol):
    """What is asked of a tokenizer; those of transformers have it."""

    @property
    def eos_token_id(self) -> int | None:
        """The id that ends a text, where there is one."""
        ...

    @property
    def all_special_ids(self) -> list[int]:
        """Ids of control tokens."""
        ...

    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> str:
        """The conversation as one text."""
        ...

    def save_pretrained(self, save_directory: str) -> object:
        """Write its files into a directory."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool, split_special_tokens: bool) -> list[int]:
        """Text to ids; with ``split_special_tokens`` what looks like a special token is encoded as plain text."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> str:
        """Ids to text."""
        ...


@dataclass(frozen=True)
class _Frame:
    """Control ids before and after a message's content; ``after`` starts with the end of turn on an assistant's."""

    before: tuple[int, ...]
    after: tuple[int, ...]


class ChatEncoder:
    """Turns messages into ids through a tokenizer's chat template.

    ``end_of_turn`` is the id that closes an assistant message; ``stop_ids`` are all ids that end an answer.
    Messages of role ``tool`` are framed as ``user``: in the plain-text protocol there are no calls that they could
    answer, and not every template has the role.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Probe the template once.

        Raises:
            ConfigError: there is no template; or it rewrites earlier messages (drops their thinking, for example), so
                that a later context would not start with the earlier one; or its answers have no closing token.
        """
        self._tokenizer = tokenizer
        self._special = frozenset(tokenizer.all_special_ids)
        self._frames: dict[tuple[str, ...], _Frame] = {}
        self._refuse_rewriting()
        self.end_of_turn: int = self._frame(("user", "assistant")).after[0]
        eos = tokenizer.eos_token_id
        self.stop_ids: frozenset[int] = frozenset({self.end_of_turn} | ({eos} if eos is not None else set()))

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Ids of the whole context, up to and with the prompt for the next answer.

        For any answer whose ``sampled_ids`` follow, ``encode(messages + [answer] + more)`` starts with
        ``encode(messages) + sampled_ids``.
        """
        return self.encode_turn(messages)[0]

    def encode_turn(self, messages: Sequence[Message]) -> tuple[list[int], int]:
        """As ``encode``, with the number of ids up to the end of the last sampled answer (0 without one): what
        follows was appended since."""
        ids: list[int] = []
        known = 0
        roles: tuple[str, ...] = ()
        for message in messages:
            roles += ("user" if message.role == "tool" else message.role,)
            frame = self._frame(roles)
            ids += frame.before
            after = frame.after
            if message.sampled_ids is None:
                ids += self._plain(message.content)
            else:
                ids += message.sampled_ids
                known = len(ids)
                after = after[1:] if message.sampled_ids[-1:] == after[:1] else after
            ids += after
        ids += self._frame((*roles, "assistant")).before
        return ids, known

    def encode_answer(self, text: str) -> list[int]:
        """Ids of an assistant's text with its end of turn: what a policy would have to sample to say it."""
        return [*self._plain(text), self.end_of_turn]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a sampled answer, without the id that ended it. Other special tokens show as text."""
        said = ids[:-1] if ids and ids[-1] in self.stop_ids else ids
        return self._tokenizer.decode(said, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def _frame(self, roles: tuple[str, ...]) -> _Frame:
        """The frame of the last of ``roles``, given those before it."""
        if roles not in self._frames:
            self._frames[roles] = self._make_frame(roles)
        return self._frames[roles]

    def _make_frame(self, roles: tuple[str, ...]) -> _Frame:
        messages = [{"role": role, "content": _MARK} for role in roles]
        earlier = self._render(messages[:-1])
        before, marked, after = self._added(earlier, self._render(messages)).partition(_MARK)
        if not marked or _MARK in after:
            raise _unusable(f"it shows the content of a {roles[-1]} message {'twice' if marked else 'not at all'}")
        if roles[-1] != "assistant":
            return _Frame(self._control(before), self._control(after))
        prompt = self._added(earlier, self._render(messages[:-1], prompt=True))
        if prompt != before:
            raise _unusable("its prompt for an answer differs from how it shows an answer later")
        closing = self._control(after)
        end = next((at for at, token in enumerate(closing) if token in self._special), None)
        if end is None:
            raise _unusable("no special token closes an answer")
        # Blanks that a template puts before the end of turn are left out: nothing could have sampled them.
        return _Frame(self._control(before), closing[end:])

    def _added(self, earlier: str, whole: str) -> str:
        if not whole.startswith(earlier):
            raise _unusable("it shows earlier messages in another way once more follow")
        return whole[len(earlier) :]

    def _refuse_rewriting(self) -> None:
        thinking = "reasoning here"
        messages = [
            {"role": "user", "content": "question"},
            {"role": "assistant", "content": f"<think>\n{thinking}\n</think>\n\nanswer"},
            {"role": "user", "content": "and then?"},
        ]
        shown = self._render(messages[:2])
        if thinking not in shown or not self._render(messages).startswith(shown):
            raise _unusable("it drops the thinking of earlier answers")

    def _render(self, messages: list[dict[str, str]], *, prompt: bool = False) -> str:
        if not messages and not prompt:
            return ""
        from jinja2 import TemplateError

        try:
            return self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
        except (TemplateError, ValueError, TypeError, LookupError) as error:
            raise _unusable(str(error).strip().partition("\n")[0]) from error

    def _control(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=False))

    def _plain(self, text: str) -> list[int]:
        # Lone surrogates (bytes that were not UTF-8) have no encoding: they become question marks.
        sound = text.encode("utf-8", "replace").decode("utf-8")
        return self._tokenizer.encode(sound, add_special_tokens=False, split_special_tokens=True)


def _unusable(why: str) -> ConfigError:
    return ConfigError(
        "The model's chat template cannot be used token by token",
        why=f"{why[:1].upper()}{why[1:]}.",
        mend="Choose another model, or put a template into its directory that only ever appends.",
    )


class Drawn(Protocol):
    """An answer as ids: what was drawn, the log-probability of each in nats (None: not told), whether it ended by
    itself, and how many ids of the context were not read again (None: not told)."""

    @property
    def ids(self) -> tuple[int, ...]: ...
    @property
    def logprobs(self) -> tuple[float, ...] | None: ...
    @property
    def stopped(self) -> bool: ...
    @property
    def cached(self) -> int | None: ...


def exact_sample(
    encoder: ChatEncoder, context: Sequence[int], known: int, drawn: Drawn, version: str | None = None
) -> Sample:
    """The sample of an answer to a ``context`` whose first ``known`` ids an earlier sample of the conversation has,
    with its ids as drawn; ``version`` as ``Sample.policy_version``."""
    return Sample(
        message=Message(role="assistant", content=encoder.decode(drawn.ids), sampled_ids=drawn.ids),
        tokens=StepTokens(
            prompt_ids=tuple(context[known:]),
            sampled_ids=drawn.ids,
            logprobs=drawn.logprobs,
            mask=(1,) * len(drawn.ids),
        ),
        usage=Usage(prompt_tokens=len(context), sampled_tokens=len(drawn.ids), cached_tokens=drawn.cached),
        finish_reason="stop" if drawn.stopped else "length",
        policy_version=version,
    )
