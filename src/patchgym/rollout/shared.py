"""Work that many ask for and one does."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """What is found out once for all who ask for it; a try that failed is made again for the next one."""

    def __init__(self) -> None:
        self._found: dict[Hashable, asyncio.Task[T]] = {}

    async def get(self, key: Hashable, find: Callable[[], Coroutine[None, None, T]]) -> T:
        """What ``find`` comes to."""
        known = self._found.get(key)
        if known is None or (known.done() and (known.cancelled() or known.exception() is not None)):
            self._found[key] = known = asyncio.create_task(find())
        return await asyncio.shield(known)

    def forget(self, key: Hashable) -> None:
        """Find it out again for the next one."""
        self._found.pop(key, None)
