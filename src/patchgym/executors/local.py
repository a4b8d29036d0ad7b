"""Work done here: in this process, on its event loop, a bounded number of items at once."""

import asyncio
from typing import Generic

from patchgym.executors.work import Doing, Item, Result


class LocalExecutor(Generic[Item, Result]):
    """Hands each item to a function as it is: nothing is copied, and nothing is turned into bytes."""

    def __init__(self, do: Doing[Item, Result], slots: int) -> None:
        """At most ``slots`` items are in hand at once."""
        self._do = do
        self._gate = asyncio.Semaphore(slots)

    async def do(self, item: Item) -> Result:
        """See ``Executor.do``; a local item costs no worker, so that none is lost."""
        async with self._gate:
            return await self._do(item)
