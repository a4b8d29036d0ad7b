"""Typed variations of recorded calls: other values of the same kind in place of one argument.

*Mild* variations stay close to what the tests give; the others go to the edges (empty, very large, None). Inputs are
data here (``inside/values.py``); nothing is made from them.
"""

from collections.abc import Iterator

from pydantic import JsonValue

_LARGE = 10**9
_LONGEST = 200


def varied(steps: list[JsonValue]) -> Iterator[tuple[list[JsonValue], bool]]:
    """Programs that differ from ``steps`` in one argument of the last call or of a constructor before it, each with
    whether it is mild."""
    for number in (len(steps) - 1, *range(len(steps) - 1)):
        step = steps[number]
        if not isinstance(step, dict):
            continue
        args, kwargs = step.get("args"), step.get("kwargs")
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            continue
        for place, value in enumerate(args):
            for other, mild in variations(value):
                changed: dict[str, JsonValue] = {**step, "args": [*args[:place], other, *args[place + 1 :]]}
                yield [*steps[:number], changed, *steps[number + 1 :]], mild
        for name, value in kwargs.items():
            for other, mild in variations(value):
                changed = {**step, "kwargs": {**kwargs, name: other}}
                yield [*steps[:number], changed, *steps[number + 1 :]], mild


def variations(value: JsonValue) -> list[tuple[JsonValue, bool]]:
    """Other values in place of an input, the mild ones first."""
    if isinstance(value, bool):
        return [(not value, True)]
    match value:
        case ["i", str(text)] if "x" not in text and len(text) < 30:
            number = int(text)
            near: list[tuple[JsonValue, bool]] = [(["i", str(number + 1)], True), (["i", str(number - 1)], True)]
            return near + [(["i", str(other)], False) for other in (0, -number, _LARGE) if other != number]
        case ["f", str(text)]:
            return _floats(text)
        case ["s", str(text)]:
            return _strings(text)
        case ["b", str()]:
            return [(["b", ""], False)]
        case ["l" | "t" as kind, list(items)] if items:
            found: list[tuple[JsonValue, bool]] = [
                ([kind, items[::-1]], True),
                ([kind, [*items, items[0]]], True),
                ([kind, items[1:]], True),
                ([kind, []], False),
            ]
            for changed, mild in variations(items[0])[:2]:
                found.append(([kind, [changed, *items[1:]]], mild))
            return [(other, mild) for other, mild in found if other != value]
        case ["d", list(pairs)] if pairs:
            return [(["d", pairs[1:]], True), (["d", []], False), *_first_value(pairs)]
        case ["S" | "F" as kind, list(items)] if items:
            return [([kind, items[1:]], True), ([kind, []], False)]
    return []


def _floats(text: str) -> list[tuple[JsonValue, bool]]:
    number = float(text)
    if number != number or number in (float("inf"), float("-inf")):
        return []
    return [(["f", repr(number + 1.0)], True), (["f", repr(number - 0.5)], True), (["f", repr(-number)], False)]


def _strings(text: str) -> list[tuple[JsonValue, bool]]:
    if len(text) > _LONGEST:
        return []
    mild = [text + text, text.upper(), text.lower(), text + "x", text[:-1], " " + text]
    edges = ["", text + " ", "\u00e9\u4e2d" + text, text.swapcase()]
    found: list[tuple[JsonValue, bool]] = []
    for others, is_mild in ((mild, True), (edges, False)):
        found += [(["s", other], is_mild) for other in others if other != text and ["s", other] not in _values(found)]
    return found


def _values(found: list[tuple[JsonValue, bool]]) -> list[JsonValue]:
    return [value for value, _ in found]


def _first_value(pairs: list[JsonValue]) -> list[tuple[JsonValue, bool]]:
    match pairs[0]:
        case [key, value]:
            return [(["d", [[key, other], *pairs[1:]]], mild) for other, mild in variations(value)[:3]]
    return []
