"""Which things belong together, given pairs that do (union-find)."""


class Groups:
    """Positions ``0`` to ``count - 1``, each in a group of its own until ``join`` puts two groups together."""

    def __init__(self, count: int) -> None:
        self._above = list(range(count))

    def root(self, position: int) -> int:
        """The smallest position of the group that ``position`` is in."""
        above = self._above
        while above[position] != position:
            above[position] = above[above[position]]
            position = above[position]
        return position

    def join(self, first: int, second: int) -> bool:
        """Put the groups of two positions together; False where they were one already."""
        low, high = sorted((self.root(first), self.root(second)))
        self._above[high] = low
        return low != high

    def same(self, first: int, second: int) -> bool:
        """Whether two positions are in one group."""
        return self.root(first) == self.root(second)

    def all(self) -> list[tuple[int, ...]]:
        """Every group, its positions in order; the groups in the order of their first."""
        found: dict[int, list[int]] = {}
        for position in range(len(self._above)):
            found.setdefault(self.root(position), []).append(position)
        return [tuple(group) for group in found.values()]
