"""What came of a call, as a structure that can be compared. Stands alone beside ``values.py``.

Plain values are told as they are encoded. ``["o", class, {attribute: told}, value]`` is an object with its public
state and, where its class extends a built-in one, its value as such; ``["e", class, ...]`` an exception; ``["y", items,
end]`` what an iterator gave; ``["g", name]`` a class; ``["^", levels]`` an object that holds the value; ``["?", type]``
what has no structure.
"""

import enum
import json
import types
from typing import Any, Dict, List

from .values import ADDRESS, CONTAINERS, DEEPEST, MOST_ITEMS, MOST_TEXT, Places, plain, reduced, state_of

MOST_TOLD = 3000
EXTENDED = (dict, list, tuple, set, frozenset, str, int, float, complex, bytes, bytearray)


class TooLarge(Exception):
    """There is more to tell than anybody compares."""


class Teller:
    """Tells values. A class of the workspace goes by its qualified name alone, or by none where that is private: an
    honest rewrite may keep it in another module, or call it otherwise."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.nodes = 0
        self.text = 0
        self.path: List[int] = []

    def tell(self, value: Any) -> Any:
        """What ``value`` is. Raises TooLarge, and whatever an iterator raises that is no ``Exception``."""
        self.nodes += 1
        if self.nodes > MOST_TOLD or len(self.path) > DEEPEST:
            raise TooLarge
        if value is None or value is True or value is False:
            return value
        if type(value) in (str, bytes, bytearray) and len(value) > MOST_TEXT:
            raise TooLarge
        simple = plain(value)
        if simple is not None:
            if simple[0] == "s":
                simple[1] = ADDRESS.sub("at 0x", simple[1])
            self.text += len(simple[1])
            if self.text > MOST_TEXT:
                raise TooLarge
            return simple
        if id(value) in self.path:
            return ["^", len(self.path) - self.path.index(id(value))]
        self.path.append(id(value))
        try:
            return self.compound(value)
        finally:
            self.path.pop()

    def compound(self, value: Any) -> Any:
        """What is not plain."""
        kind = type(value)
        if kind in CONTAINERS or kind is dict:
            return self.container(value, kind)
        if isinstance(value, type):
            return ["g", self.name(value)]
        if isinstance(value, types.ModuleType):
            return ["g", value.__name__]
        if isinstance(value, BaseException):
            return ["e", self.name(kind), self.public(value)]
        if isinstance(value, enum.Enum):
            return ["o", self.name(kind), {"name": ["s", value.name], "value": self.tell(value.value)}, None]
        if callable(value) and not self.places.of_class(kind):
            return ["?", "function"]
        if self.is_iterator(value):
            return self.iterated(value)
        base = next((one for one in EXTENDED if issubclass(kind, one)), None)
        if base is None and not self.places.of_class(kind):
            return self.foreign(value, kind)
        state = self.public(value)
        if base is None:
            return ["o", self.name(kind), state, None] if state else ["?", self.name(kind)]
        return ["o", self.name(kind), state, self.as_built_in(value, base)]

    def container(self, value: Any, kind: type) -> Any:
        """A list, a tuple, a set or a dict, by what that type itself says that it holds."""
        if kind is dict:
            pairs = [[self.tell(key), self.tell(item)] for key, item in dict.items(value)]
            return ["d", sorted(pairs, key=text_of)]
        items = [self.tell(item) for item in kind.__iter__(value)]  # type: ignore[attr-defined]
        return [CONTAINERS[kind], sorted(items, key=text_of) if CONTAINERS[kind] in "SF" else items]

    def as_built_in(self, value: Any, base: type) -> Any:
        """An object whose class extends a built-in one, as one of those; the class cannot answer for it."""
        if base is dict:
            pairs = [[self.tell(key), self.tell(item)] for key, item in dict.items(value)]
            return ["d", sorted(pairs, key=text_of)]
        if base in CONTAINERS:
            return self.container(value, base)
        every = slice(None)
        if base in (str, bytes, bytearray):
            return self.tell(base.__getitem__(value, every))
        return self.tell(base.__add__(value, 0))  # type: ignore[operator]

    def foreign(self, value: Any, kind: type) -> Any:
        """An object of the standard library or of an installed package, by its parts."""
        parts = reduced(value)
        if parts is None or (parts[1] in ((), (kind,)) and not any(parts[2:])):  # nothing but its class
            return ["?", self.name(kind)]
        return ["o", self.name(kind), {}, ["t", [self.tell(part) for part in parts[1:]]]]

    def is_iterator(self, value: Any) -> bool:
        """Whether it gives its items only once."""
        kind = type(value)
        if kind.__name__ == "generator":
            return True
        made_of_c = kind.__module__ in ("builtins", "itertools")
        return made_of_c and hasattr(kind, "__next__") and hasattr(kind, "__iter__")

    def iterated(self, value: Any) -> Any:
        """The first items of an iterator, and how it ended."""
        items: List[Any] = []
        end: Any = "more"
        try:
            while len(items) < MOST_ITEMS:
                items.append(self.tell(next(value)))
        except StopIteration:
            end = "end"
        except TooLarge:
            raise
        except Exception as error:  # noqa: BLE001 -- it is what the call comes to
            end = self.name(type(error))
        return ["y", items, end]

    def public(self, value: Any) -> Dict[str, Any]:
        """The public attributes that an object holds."""
        state = state_of(value)
        return {name: self.tell(state[name]) for name in sorted(state) if not name.startswith("_")}

    def name(self, kind: type) -> str:
        """What a class goes by."""
        name = type.__dict__["__qualname__"].__get__(kind)
        if self.places.of_class(kind) == "source":
            return "_" if any(part.startswith("_") for part in name.split(".")) else str(name)
        return "{}.{}".format(kind.__module__, name)


def text_of(told: Any) -> str:
    """One text for what is told."""
    return json.dumps(told, sort_keys=True)
