"""Whether what an attempt told is what the solution told. Both are data; nothing is evaluated.

An attempt need not look like the solution inside: attributes that the solution does not show are not compared, and
neither are messages of exceptions, nor what has no structure.
"""

import json
import re
from collections.abc import Collection

from pydantic import JsonValue

Told = dict[str, JsonValue]
_STEP = re.compile("\0(\\d+);")


def agrees(expected: Told, told: Told) -> bool:
    """Whether a call came to the same."""
    for key in ("raised", "ended", "printed", "files"):
        if expected.get(key) != told.get(key):
            return False
    if ("result" in expected) != ("result" in told) or not _same(expected.get("result"), told.get("result")):
        return False
    return _same_after(_table(expected.get("after")), _table(told.get("after")))


def _table(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _same_after(expected: dict[str, JsonValue], told: dict[str, JsonValue]) -> bool:
    """Arguments that the call changed. An object may change in what the solution does not have."""
    for place in expected.keys() | told.keys():
        if place in expected and place in told:
            if not _same(expected[place], told[place]):
                return False
        elif not _is_object(expected.get(place, told.get(place))):
            return False
    return True


def _is_object(told: JsonValue) -> bool:
    return isinstance(told, list) and len(told) == 4 and told[0] == "o" and told[3] is None


def _same(expected: JsonValue, told: JsonValue) -> bool:
    match expected, told:
        case ["?", _], _:
            return True
        case ["o", str(name), dict(state), value], ["o", str(other), dict(shown), held]:
            return name == other and _has(state, shown) and _same(value, held)
        case ["e", str(name), dict(state)], ["e", str(other), dict(shown)]:
            return name == other and _has(state, shown)
        case list(), list():
            return len(expected) == len(told) and all(map(_same, expected, told))
        case dict(), dict():
            return expected.keys() == told.keys() and all(_same(expected[key], told[key]) for key in expected)
    return type(expected) is type(told) and expected == told


def _has(state: dict[str, JsonValue], shown: dict[str, JsonValue]) -> bool:
    return all(name in shown and _same(value, shown[name]) for name, value in state.items())


def pruned(told: JsonValue, names: Collection[str]) -> JsonValue:
    """What was told without the attributes whose names are not among ``names``: the solution added them, and another
    one need not."""
    match told:
        case ["o" | "e" as kind, str(name), dict(state), *rest]:
            kept: dict[str, JsonValue] = {key: pruned(value, names) for key, value in state.items() if key in names}
            return [kind, name, kept, *[pruned(one, names) for one in rest]]
        case list():
            return [pruned(one, names) for one in told]
        case dict():
            return {key: pruned(value, names) for key, value in told.items()}
    return told


def structured(told: JsonValue) -> bool:
    """Whether there is anything to compare."""
    match told:
        case ["?", _]:
            return False
        case ["o" | "e", str(), dict(state), *rest]:
            return told[0] == "e" or any(structured(value) for value in state.values()) or rest not in ([None], [])
        case ["l" | "t" | "S" | "F" | "d", list(items)]:
            return not items or any(structured(item) for item in items)
        case [list(key), list(value)]:
            return structured(key) or structured(value)
    return True


def shown(told: Told, limit: int = 200) -> str:
    """What a call came to, in words and cut."""
    if "ended" in told:
        return f"ended ({told['ended']})"
    if "unmade" in told:
        return f"could not be made ({told['unmade']})"
    if "raised" in told:
        return f"raised {told['raised']}"
    text = in_words(told.get("result"))
    return text if len(text) <= limit else text[:limit] + "..."


def in_words(told: JsonValue) -> str:
    """A told value or an input as a person writes it, more or less. It is never evaluated."""
    match told:
        case None | bool():
            return str(told)
        case ["i" | "f", str(text)]:
            return text
        case ["s", str(text)]:
            return json.dumps(text, ensure_ascii=False)
        case ["l" | "t" | "S" | "F" as kind, list(items)]:
            brackets = {"l": ("[", "]"), "t": ("(", ")")}
            left, right = brackets.get(str(kind), ("{", "}"))
            return left + ", ".join(map(in_words, items)) + right
        case ["d", list(pairs)]:
            told_pairs = [f"{in_words(p[0])}: {in_words(p[1])}" for p in pairs if isinstance(p, list) and len(p) == 2]
            return "{" + ", ".join(told_pairs) + "}"
        case ["g", _, str(name)] | ["g", str(name)] | ["m", str(name)]:
            return name
        case ["o", str(name), *_] | ["?", str(name)] | ["e", str(name), *_]:
            return f"<{name}>"
        case ["k", int(step)]:
            return f"\0{step};"
        case ["a", of, str(name)]:
            return f"{in_words(of)}.{name}"
    return json.dumps(told)[:80]


def call_in_words(steps: list[JsonValue], limit: int = 200) -> str:
    """The last call of a program, with those that made its arguments in their place."""
    made: list[str] = []
    for step in steps:
        match step:
            case {"of": of, "args": list(args), "kwargs": dict(kwargs)}:
                named = [f"{name}={in_words(value)}" for name, value in kwargs.items()]
                text = f"{in_words(of)}({', '.join([*map(in_words, args), *named])})"
                made.append(_STEP.sub(lambda match: made[int(match[1])] if int(match[1]) < len(made) else "?", text))
            case _:
                made.append("?")
    return made[-1] if len(made[-1]) <= limit else made[-1][:limit] + "..."
