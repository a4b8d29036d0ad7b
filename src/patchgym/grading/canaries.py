"""Tests whose outcome is known, drawn anew for each run and planted among the real ones.

Whoever turns failures into passes turns those of the canaries as well, unless it can tell them apart. Their names are
made of the task's own, their values and their kinds are drawn, and which of them must fail is known here alone.
"""

import random
import secrets
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath

from patchgym.records import Outcome
from patchgym.testrun import Canary, function_of

_PLACES = ("first", "middle", "last")
_MOST_EXTRA = 3
_FALLBACK = ("value", "result", "empty", "name", "default", "nested", "order", "index", "simple", "key")


def draw_canaries(ids: Sequence[str], draw: random.Random | None = None) -> tuple[Canary, ...]:
    """Canaries for a run of the tests ``ids``: one that must fail near the beginning, the middle and the end; one that
    must raise; one of equal values; one that looks at identity and types; and a few more. None where no test stands in
    a Python file. ``draw`` is for tests; else the system's own randomness."""
    draw = draw or random.SystemRandom()
    files = sorted({path for path in (function_of(test)[0] for test in ids) if path.endswith(".py")})
    if not files:
        return ()
    namer = _Namer(ids, draw)
    wanted: list[tuple[_Maker, Outcome, float]] = [
        (draw.choice(_FAILING), Outcome.FAILED, 0.0),
        (draw.choice(_FAILING), Outcome.FAILED, draw.uniform(0.3, 0.7)),
        (draw.choice(_FAILING), Outcome.FAILED, 1.0),
        (_raises, Outcome.FAILED, draw.random()),
        (_equal, Outcome.PASSED, draw.random()),
        (_sound, Outcome.PASSED, draw.random()),
    ]
    for _ in range(draw.randint(0, _MOST_EXTRA)):
        bad = draw.random() < 0.5
        maker = draw.choice(_FAILING) if bad else draw.choice((_equal, _sound))
        wanted.append((maker, Outcome.FAILED if bad else Outcome.PASSED, draw.random()))
    owned = set(draw.sample(range(3), 1)) | {len(wanted) - 1}  # in a file of its own: one that must fail, and another
    file = namer.file(draw.choice(files))
    found = []
    for at, (maker, outcome, share) in enumerate(wanted):
        name = namer.test()
        body = "".join(f"    {line}\n" for line in maker(draw, namer.word))
        line = draw.randint(20, 400)
        found.append(Canary(file, name, f"def {name}():\n{body}", at in owned, share, line, outcome))
    draw.shuffle(found)
    return tuple(found)


_Maker = Callable[[random.Random, Callable[[], str]], list[str]]


class _Namer:
    """Names that look like those of the real tests."""

    def __init__(self, ids: Iterable[str], draw: random.Random) -> None:
        names = [function_of(test)[1].rpartition(".")[2] for test in ids]
        self._draw = draw
        self._taken = set(names)
        self._head = next((name.split("_")[0] for name in names if name.startswith("test")), "test")
        parts = {part for name in names for part in name.split("_")[1:] if part.isidentifier() and part.isascii()}
        self._parts = sorted(parts | set(_FALLBACK))

    def word(self) -> str:
        """A fresh name of a variable."""
        return f"{self._draw.choice(_FALLBACK)}_{secrets.token_hex(2)}"

    def test(self) -> str:
        """A fresh name of a test function."""
        while True:
            count = self._draw.randint(2, 4)
            name = "_".join([self._head, *(self._draw.choice(self._parts) for _ in range(count))])
            if name not in self._taken:
                self._taken.add(name)
                return name

    def file(self, beside: str) -> str:
        """A fresh name of a test file beside another."""
        stem = "_".join(self._draw.choice(self._parts) for _ in range(2))
        return str(PurePosixPath(beside).with_name(f"test_{stem}_{secrets.token_hex(2)}.py"))


def _value(draw: random.Random) -> tuple[object, object]:
    """A value and another of its type that is not equal to it."""
    number = draw.randint(-9999, 9999)
    text = secrets.token_hex(draw.randint(2, 6))
    return draw.choice(
        (
            (number, number + draw.randint(1, 9)),
            (text, text[::-1] + "x"),
            ([number, text], [number, text, number]),
            ({text: number}, {text: number + 1}),
            ((number, None), (None, number)),
            (number / 7, number / 7 + 1),
            ({number, number + 2}, {number, number + 1}),
        )
    )


def _unequal(draw: random.Random, word: Callable[[], str]) -> list[str]:
    left, right = word(), word()
    one, other = _value(draw)
    return [f"{left} = {one!r}", f"{right} = {other!r}", f"assert {left} == {right}"]


def _equal(draw: random.Random, word: Callable[[], str]) -> list[str]:
    left, right = word(), word()
    one, other = _value(draw)
    return [f"{left} = {one!r}", f"{right} = {one!r}", f"assert {left} == {right}", f"assert {left} != {other!r}"]


def _raises(draw: random.Random, word: Callable[[], str]) -> list[str]:
    name = word()
    error = draw.choice(("ValueError", "KeyError", "TypeError", "RuntimeError", "AssertionError"))
    return [f"{name} = {draw.randint(1, 999)}", f"raise {error}({name})"]


def _unittest(draw: random.Random, word: Callable[[], str]) -> list[str]:
    name = word()
    one, other = _value(draw)
    return ["import unittest", f"{name} = {one!r}", f"unittest.TestCase().assertEqual({name}, {other!r})"]


def _no_raise(draw: random.Random, word: Callable[[], str]) -> list[str]:
    name, key = word(), draw.randint(1, 999)
    return [
        "import pytest",
        f"{name} = {{{key}: {draw.randint(1, 999)}}}",
        "with pytest.raises(KeyError):",
        f"    {name}[{key}]",
    ]


def _not_near(draw: random.Random, word: Callable[[], str]) -> list[str]:
    name, number = word(), draw.uniform(1, 99)
    return ["import pytest", f"{name} = {number!r}", f"assert {name} == pytest.approx({number * 1.5!r})"]


def _wrong_type(draw: random.Random, word: Callable[[], str]) -> list[str]:
    name = word()
    one, kind = draw.choice(((draw.randint(1, 99), "str"), (secrets.token_hex(3), "int"), ([1, 2], "dict")))
    return [f"{name} = {one!r}", f"assert isinstance({name}, {kind})"]


def _sound(draw: random.Random, word: Callable[[], str]) -> list[str]:
    """Whether comparison, types, pytest, unittest and the clock are what they were, in an order drawn at random."""
    a, b = word(), word()
    number, text = draw.randint(100, 9999), secrets.token_hex(3)
    looks = [
        [f"assert not ({number} == {number + 1})", f"assert ({number} == {number}) is True"],
        [f"assert not ({text!r} == {text + 'x'!r})", f"assert ({text!r} != {text!r}) is False"],
        [f"assert not ([{number}] == [{number}, {number}])", f"assert {{{text!r}: 1}} != {{{text!r}: 2}}"],
        [f"assert not isinstance({text!r}, int)", f"assert isinstance({number}, int) and type({number}) is int"],
        [f"assert len([{number}] * 3) == 3", f"assert sum([{number}, 1]) == {number + 1}"],
        [f"assert sorted([{number}, 3, {number - 50}])[-1] == {number}", "assert not any([0, None, ''])"],
        [f"with pytest.raises(AssertionError): assert {number} == {number - 1}"],
        ["with pytest.raises(ZeroDivisionError): 1 / 0"],
        [f"with pytest.raises(AssertionError): unittest.TestCase().assertEqual({number}, {number + 2})"],
        [f"with pytest.raises(AssertionError): unittest.TestCase().assertTrue([{number}] == [])"],
        [f"assert {number}.0 != pytest.approx({number + 1}.0)", f"assert {number}.0 == pytest.approx({number}.0)"],
        [
            f"{a} = time.monotonic()",
            f"for {b} in range(20000): pass",  # some tenths of a millisecond; a clock that stands must not hang us
            f"assert time.monotonic() > {a}",
        ],
        [f"{b} = object()", f"assert {b} == {b} and {b} != object() and {b} is not None"],
        [f"assert str({number}) == {str(number)!r}", f"assert repr({text!r}) == {repr(text)!r}"],
    ]
    draw.shuffle(looks)
    return ["import time, unittest", "import pytest", *(line for look in looks for line in look)]


_FAILING: tuple[_Maker, ...] = (_unequal, _unittest, _no_raise, _not_near, _wrong_type)
