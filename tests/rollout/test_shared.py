"""Work that is done once for all who ask."""

import asyncio

import pytest

from patchgym.rollout.shared import Shared


class Work:
    """Counts how often it is done; the tries in ``failing`` fail."""

    def __init__(self, *failing: int) -> None:
        self.done = 0
        self._failing = failing

    async def __call__(self) -> int:
        self.done += 1
        mine = self.done
        await asyncio.sleep(0.01)
        if mine in self._failing:
            raise ValueError(mine)
        return mine


def test_those_who_ask_at_once_and_later_get_one_result() -> None:
    async def ask(work: Work) -> list[int]:
        shared = Shared[int]()
        first = await asyncio.gather(*(shared.get("a", work) for _ in range(3)))
        return [*first, await shared.get("a", work), await shared.get("b", work)]

    assert asyncio.run(ask(Work())) == [1, 1, 1, 1, 2]


def test_what_failed_or_is_forgotten_is_done_again() -> None:
    async def ask(work: Work) -> list[int]:
        shared = Shared[int]()
        with pytest.raises(ValueError, match="1"):
            await shared.get("a", work)
        found = [await shared.get("a", work), await shared.get("a", work)]
        shared.forget("a")
        return [*found, await shared.get("a", work)]

    assert asyncio.run(ask(Work(1))) == [2, 2, 3]


def test_one_who_is_cancelled_takes_nothing_from_the_others() -> None:
    async def ask(work: Work) -> int:
        shared = Shared[int]()
        impatient = asyncio.create_task(shared.get("a", work))
        patient = asyncio.create_task(shared.get("a", work))
        await asyncio.sleep(0)
        impatient.cancel()
        return await patient

    assert asyncio.run(ask(Work())) == 1
