"""A small package of two files with its tests, to plan bugs in, and coverage of it."""

from collections.abc import Mapping

from patchgym.tasks.bugs.survey import functions_of
from patchgym.testrun import Coverage

PRICES, CART = "shop/prices.py", "shop/cart.py"
SHELF = {
    PRICES: '''\
def rounded(price, digits=2):
    factor = 10**digits
    return int(price * factor + 0.5) / factor


def discount(price, share=10):
    """The price without a share of it, in per cent."""
    if share < 0 or share > 100:
        raise ValueError("no share")
    return rounded(price * (100 - share) / 100)


def cheapest(prices, limit=3):
    """The lowest prices, in order."""
    found = []
    for price in sorted(prices):
        if len(found) >= limit:
            break
        found.append(price)
    return found


def unused(price):
    return price + 1
''',
    CART: '''\
from shop.prices import discount


class Cart:
    def __init__(self, items=None):
        self.items = list(items or [])

    def add(self, price, count=1):
        """Put a thing in, some times."""
        for _ in range(count):
            self.items.append(price)
        return self

    def total(self, share=0):
        """What all things cost together."""
        total = 0
        for price in self.items:
            if price is None:
                continue
            total += discount(price, share)
        return total
''',
    "tests/test_shop.py": """\
from shop.cart import Cart
from shop.prices import cheapest, discount


def test_discount():
    assert discount(100) == 90


def test_no_discount():
    assert discount(100, share=0) == 100


def test_cheapest():
    assert cheapest([3, 1, 2]) == [1, 2, 3]


def test_cheapest_of_many():
    assert cheapest([4, 3, 1, 2]) == [1, 2, 3]


def test_total():
    assert Cart().add(2).add(3, 2).total() == 8


def test_total_with_discount():
    assert Cart([100, None]).add(100).total(10) == 180
""",
}


def covered(counts: Mapping[str, Mapping[str, int]]) -> Coverage:
    """Coverage in which so many test functions run every line of each function."""
    lines: dict[str, dict[int, frozenset[str]]] = {}
    for path, functions in counts.items():
        known = {facts.name: facts for facts in functions_of(path, SHELF[path])}
        for name, count in functions.items():
            tests = frozenset(f"tests/test_shop.py::test_{name}_{at}" for at in range(count))
            lines.setdefault(path, {}).update(dict.fromkeys(known[name].lines, tests))
    return Coverage(lines)
