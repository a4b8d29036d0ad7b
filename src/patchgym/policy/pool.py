"""Several servers of one model as one policy: work goes to those with the least of it, and past those that are down."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from patchgym.errors import ConfigError, EndpointError, EndpointRetryable
from patchgym.policy.protocol import Policy
from patchgym.records import Message, Sample, Sampling, ToolSpec

_REST_S = 15.0
_SLACK = 4


class Member(Policy, Protocol):
    """A policy that can say whether it answers."""

    async def check(self) -> None:
        """Find out whether it answers.

        Raises:
            EndpointError, ConfigError: it does not.
        """
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


class _State:
    def __init__(self, url: str, policy: Member) -> None:
        self.url, self.policy = url, policy
        self.load = 0
        self.down_at: float | None = None
        self.checking: asyncio.Task[None] | None = None


class EndpointPool:
    """The members answer in turn, each with its own bounded patience. A request goes to one of those with the fewest
    requests in flight, give or take a few: among them a conversation keeps to its own, whose cache knows its beginning.
    A member that does not answer gets nothing more until a check, made every 15 s while there is work, finds it well;
    its request goes to another. Only where all have failed does a request fail.
    """

    def __init__(self, members: Mapping[str, Member], *, clock: Callable[[], float] = time.monotonic) -> None:
        """``members`` by their base URL; they must be of one protocol.

        Raises:
            ConfigError: there is none, or some take native tools and others do not.
        """
        kinds = {member.native_tools for member in members.values()}
        if len(kinds) != 1:
            raise ConfigError("A pool of endpoints needs members of one protocol", why=f"It has {len(members)}.")
        self.native_tools = kinds.pop()
        self._members = [_State(url, member) for url, member in members.items()]
        self._clock = clock
        self.version = self._members[0].policy.version

    @property
    def down(self) -> tuple[str, ...]:
        """The base URLs of members that did not answer when they were last asked."""
        return tuple(member.url for member in self._members if member.down_at is not None)

    async def sample(self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling) -> Sample:
        """See ``Policy.sample``.

        Raises:
            EndpointRetryable: no member answers.
            ContextLengthError, EndpointError: as the member says that was asked.
        """
        failed: EndpointRetryable | None = None
        tried: set[str] = set()
        while (member := self._choose(_key(messages, sampling), tried)) is not None:
            tried.add(member.url)
            member.load += 1
            try:
                found = await member.policy.sample(messages, tools, sampling)
            except EndpointRetryable as error:
                member.down_at, failed = self._clock(), error
                continue
            finally:
                member.load -= 1
            member.down_at = None
            self.version = member.policy.version
            return found
        assert failed is not None
        raise failed

    async def check(self) -> None:
        """Ask every member. Some may be down; those that answer must be of one version.

        Raises:
            EndpointError: none answers; it is the first one's error.
            ConfigError: they serve different models.
        """
        found = await asyncio.gather(*(self._asked(member) for member in self._members))
        if all(error is not None for error in found) and found[0] is not None:
            raise found[0]
        versions = {member.policy.version for member in self._members if member.down_at is None}
        if len(versions) > 1:
            raise ConfigError(
                "The endpoints of the pool serve different models",
                why=f"They call them {', '.join(sorted(versions))}.",
                mend="Name servers of one model and version.",
            )
        self.version = versions.pop()

    async def close(self) -> None:
        """Close every member's connections. May be called twice."""
        for member in self._members:
            if member.checking is not None:
                member.checking.cancel()
            await member.policy.close()

    def _choose(self, key: bytes, tried: set[str]) -> _State | None:
        """The member for a conversation, of those that were not tried; one that is down only where all are."""
        left = [member for member in self._members if member.url not in tried]
        for member in left:
            self._look_again(member)
        well = [member for member in left if member.down_at is None]
        if not well:
            return min(left, key=lambda one: one.down_at or 0.0, default=None)
        least = min(member.load for member in well)
        near = [member for member in well if member.load <= least + _SLACK]
        # Highest random weight (Thaler and Ravishankar, 1998): each conversation has its own order of the members.
        return max(near, key=lambda one: hashlib.sha256(key + one.url.encode()).digest())

    def _look_again(self, member: _State) -> None:
        rested = member.down_at is not None and self._clock() - member.down_at >= _REST_S
        if rested and (member.checking is None or member.checking.done()):
            member.checking = asyncio.create_task(self._checked(member))

    async def _checked(self, member: _State) -> None:
        await self._asked(member)

    async def _asked(self, member: _State) -> EndpointError | None:
        try:
            await member.policy.check()
        except EndpointError as error:
            member.down_at = self._clock()
            return error
        member.down_at = None
        return None


def _key(messages: Sequence[Message], sampling: Sampling) -> bytes:
    """What a conversation keeps from turn to turn: how it begins, and its seed."""
    beginning = "\0".join(message.content for message in messages[:2])
    return hashlib.sha256(f"{sampling.seed}\0{beginning}".encode("utf-8", "surrogatepass")).digest()
