"""A pool of endpoints: balanced, sticky, and not stopped by a member that is down."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from patchgym.errors import ConfigError, EndpointError, EndpointRetryable
from patchgym.policy.pool import EndpointPool
from patchgym.records import Message, Sample, Sampling, ToolSpec, Usage
from patchgym.rollout import PolicyOptions, open_policy


class Server:
    """A member that answers, or does not."""

    native_tools = True

    def __init__(self, *, version: str = "model-1", seconds: float = 0.0) -> None:
        self.version, self.seconds = version, seconds
        self.well = True
        self.asked = self.checked = self.at_once = self.most_at_once = 0

    async def sample(self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling) -> Sample:
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(self.seconds)
        self.at_once -= 1
        if not self.well:
            raise EndpointRetryable("It does not answer")
        usage = Usage(prompt_tokens=0, sampled_tokens=0)
        return Sample(message=Message(role="assistant", content="ok"), usage=usage, finish_reason="stop")

    async def check(self) -> None:
        self.checked += 1
        if not self.well:
            raise EndpointRetryable("It does not answer")

    async def close(self) -> None:
        pass


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def pool_of(*servers: Server, clock: Clock | None = None) -> EndpointPool:
    return EndpointPool({f"http://host{at}/v1": one for at, one in enumerate(servers)}, clock=clock or Clock())


async def ask(pool: EndpointPool, conversation: int) -> Sample:
    said = [Message(role="system", content="Mend it."), Message(role="user", content=f"task {conversation}")]
    return await pool.sample(said, (), Sampling(seed=conversation))


def test_a_conversation_keeps_to_its_member() -> None:
    servers = [Server() for _ in range(4)]
    pool = pool_of(*servers)

    async def turns() -> None:
        for _ in range(10):
            await ask(pool, 7)

    asyncio.run(turns())
    assert sorted(server.asked for server in servers) == [0, 0, 0, 10]


def test_many_conversations_are_spread_evenly() -> None:
    servers = [Server(seconds=0.01) for _ in range(4)]
    pool = pool_of(*servers)

    async def many() -> None:
        await asyncio.gather(*(ask(pool, number) for number in range(200)))

    asyncio.run(many())
    assert all(40 <= server.most_at_once <= 60 for server in servers)


def test_a_request_to_a_member_that_is_down_is_answered_by_another() -> None:
    servers = [Server(), Server(), Server()]
    servers[1].well = False
    pool = pool_of(*servers)

    async def many() -> list[Sample]:
        return [await ask(pool, number) for number in range(30)]

    assert len(asyncio.run(many())) == 30
    assert servers[1].asked == 1  # the first that went there was the last
    assert pool.down == ("http://host1/v1",)


def test_a_member_that_is_well_again_gets_work_again() -> None:
    clock = Clock()
    servers = [Server(), Server()]
    servers[0].well = False
    pool = pool_of(*servers, clock=clock)

    async def over_time() -> Counter[int]:
        for number in range(10):
            await ask(pool, number)
        servers[0].well = True
        clock.now += 5
        await ask(pool, 1)
        assert servers[0].checked == 0  # it rests
        clock.now += 15
        await ask(pool, 1)
        await asyncio.sleep(0.01)
        before = servers[0].asked
        for number in range(20):
            await ask(pool, number)
        return Counter({0: servers[0].asked - before})

    assert asyncio.run(over_time())[0] > 0
    assert servers[0].checked == 1


def test_a_request_fails_where_every_member_fails() -> None:
    servers = [Server(), Server()]
    for server in servers:
        server.well = False
    with pytest.raises(EndpointRetryable):
        asyncio.run(ask(pool_of(*servers), 1))
    assert [server.asked for server in servers] == [1, 1]


def test_members_of_different_versions_are_refused() -> None:
    with pytest.raises(ConfigError, match="different models"):
        asyncio.run(pool_of(Server(), Server(version="model-2")).check())


def test_one_member_down_at_the_start_is_no_reason_to_stop() -> None:
    servers = [Server(), Server()]
    servers[0].well = False
    asyncio.run(pool_of(*servers).check())
    servers[1].well = False
    with pytest.raises(EndpointError):
        asyncio.run(pool_of(*servers).check())


def test_base_urls_with_commas_make_a_pool() -> None:
    source = open_policy("openai:model-1", PolicyOptions("http://127.0.0.1:9/v1, http://127.0.0.1:10/v1"))
    assert type(source).__name__ == "_Pooled"
    assert source.version == "model-1"
    asyncio.run(source.close())
