"""Values as text, inside a sandbox. Stands alone: only the standard library, and any Python from 3.8 on.

Two encodings, both JSON. An *input* (``Encoder``, ``Decoder``) can be made again by another process: plain values,
what has a global name, what can be taken apart as ``copy`` does, and the results of earlier steps of the same program.
What a call *told* (``Teller``) is only ever compared: exact types, floats by ``repr``, sets and dicts in an order of
their own, objects by their class and public state.

An input is ``null``, ``true``, ``false`` or a list that begins with its kind: ``i f c s b B`` (int, float, complex,
str, bytes, bytearray), ``l t S F d`` (list, tuple, set, frozenset, dict), ``g`` (module and qualified name), ``m``
(module), ``a`` (an attribute of a value), ``k`` (the result of a step), ``R`` (parts of a reduced object).
"""

import base64
import contextlib
import copyreg
import enum
import importlib
import os
import re
import sys
import types
from typing import Any, Callable, Dict, List, Optional, Tuple

MOST_NODES = 4000
MOST_TEXT = 60_000
MOST_ITEMS = 50
DEEPEST = 60
ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")
CONTAINERS: Dict[type, str] = {list: "l", tuple: "t", set: "S", frozenset: "F"}
TRANSIENT = ("generator", "coroutine", "async_generator", "frame", "traceback", "cell", "code")


class Unsayable(Exception):
    """A value that has no text; the argument is its kind, in words."""


def global_name(value: Any) -> Optional[Tuple[str, str]]:
    """The module and the qualified name under which ``value`` itself can be found again, if there are such."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module is None and isinstance(value, types.BuiltinFunctionType):
        module = "builtins"
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name or module == "__main__":
        return None
    try:
        return (module, name) if found_at(module, name) is value else None
    except (ImportError, AttributeError):
        return None


def found_at(module: str, name: str) -> Any:
    """What a module holds under a qualified name. Raises ImportError or AttributeError."""
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def plain(value: Any) -> Optional[List[Any]]:
    """The encoding that inputs and told values share, for values of exactly these types; None for others."""
    kind = type(value)
    if kind is int:
        return ["i", str(value) if value.bit_length() < 10_000 else hex(value)]
    if kind is float:
        return ["f", repr(value)]
    if kind is complex:
        return ["c", repr(value.real), repr(value.imag)]
    if kind is str:
        return ["s", value]
    if kind is bytes or kind is bytearray:
        return ["b" if kind is bytes else "B", base64.b64encode(value).decode()]
    return None


class Places:
    """Which files are the workspace's sources, and which its tests."""

    def __init__(self, root: str, tests: List[str]) -> None:
        self.root = os.path.join(os.path.realpath(root), "")
        self.tests = frozenset(os.path.join(self.root, path) for path in tests)
        self.known: Dict[str, str] = {}

    def of(self, filename: str) -> str:
        """``source``, ``test`` or, for what lies elsewhere, nothing."""
        if filename not in self.known:
            path = os.path.realpath(filename)
            parts = path[len(self.root) :].split(os.sep) if path.startswith(self.root) else []
            named = any(re.match(r"tests?$|test_|conftest\.py$|.*_test\.py$", part) for part in parts)
            self.known[filename] = "" if not parts else "test" if named or path in self.tests else "source"
        return self.known[filename]

    def of_class(self, kind: type) -> str:
        """The same of the file that defines a class."""
        module = sys.modules.get(getattr(kind, "__module__", None) or "")
        return self.of(getattr(module, "__file__", None) or "")


class Encoder:
    """Turns arguments into inputs; ``step_of`` gives the number of the step that an object is the result of."""

    def __init__(self, places: Places, step_of: Callable[[Any], Optional[int]]) -> None:
        self.places = places
        self.step_of = step_of
        self.nodes = 0
        self.steps: List[int] = []
        self.path: List[int] = []

    def encode(self, value: Any) -> Any:
        """The input for ``value``. Raises Unsayable."""
        self.nodes += 1
        if self.nodes > MOST_NODES or len(self.path) > DEEPEST:
            raise Unsayable("too large an argument")
        if value is None or value is True or value is False:
            return value
        simple = plain(value)
        if simple is not None:
            if len(simple[1]) > MOST_TEXT:
                raise Unsayable("too large an argument")
            return simple
        if id(value) in self.path:
            raise Unsayable("argument that holds itself")
        self.path.append(id(value))
        try:
            return self.compound(value)
        finally:
            self.path.pop()

    def compound(self, value: Any) -> Any:
        """The input for what is not plain."""
        kind = type(value)
        if kind in CONTAINERS:
            return [CONTAINERS[kind], [self.encode(item) for item in value]]
        if kind is dict:
            return ["d", [[self.encode(key), self.encode(item)] for key, item in value.items()]]
        step = self.step_of(value)
        if step is not None:
            self.steps.append(step)
            return ["k", step]
        if kind is types.ModuleType:
            if self.places.of(getattr(value, "__file__", None) or "") == "test":
                raise Unsayable("module of the tests")
            return ["m", value.__name__]
        if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
            return self.named(value)
        if kind is types.MethodType:
            return ["a", self.encode(value.__self__), value.__func__.__name__]
        if value is Ellipsis or value is NotImplemented:
            return ["g", "builtins", repr(value)]
        return self.taken_apart(value, kind)

    def named(self, value: Any) -> Any:
        """A class or a function by its global name."""
        name = global_name(value)
        if name is None:
            raise Unsayable("lambda" if getattr(value, "__name__", "") == "<lambda>" else "local function or class")
        if self.places.of(getattr(sys.modules.get(name[0]), "__file__", None) or "") == "test":
            raise Unsayable("function or class of the tests")
        return ["g", *name]

    def taken_apart(self, value: Any, kind: type) -> Any:
        """An object by the parts that ``copy`` would make it from. An object of the workspace that has private state
        is not: another implementation may keep another one."""
        place = self.places.of_class(kind)
        if place == "test":
            raise Unsayable("object of a class of the tests")
        if kind.__name__ in TRANSIENT or (kind.__module__ or "").split(".")[0] == "unittest":
            raise Unsayable(kind.__name__.replace("_", " "))
        other = place == "source" and not isinstance(value, enum.Enum)
        if other and any(name.startswith("_") for name in state_of(value)):
            raise Unsayable("object with private state")
        parts = reduced(value)
        if parts is None:
            raise Unsayable("object that cannot be made again: " + kind.__name__)
        return ["R", *[self.encode(part) for part in parts]]


def reduced(value: Any) -> Optional[List[Any]]:
    """The callable, its arguments, the state, the items and the pairs that make an object again; None where it cannot
    be taken apart."""
    try:
        found = value.__reduce_ex__(2)
    except Exception:  # noqa: BLE001 -- whatever the class of a candidate does
        return None
    if not isinstance(found, tuple) or not 2 <= len(found) <= 5:
        return None
    make, arguments, state, items, pairs = (*found, None, None, None)[:5]
    return [
        make,
        tuple(arguments),
        state,
        None if items is None else list(items),
        None if pairs is None else [tuple(pair) for pair in pairs],
    ]


def state_of(value: Any) -> Dict[str, Any]:
    """The attributes that an object itself holds, in ``__dict__`` and in slots."""
    found: Dict[str, Any] = {}
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            try:
                found[name] = object.__getattribute__(value, name)
            except AttributeError:
                continue
    with contextlib.suppress(AttributeError, TypeError):
        found.update(object.__getattribute__(value, "__dict__"))
    return {name: item for name, item in found.items() if name not in ("__dict__", "__weakref__")}


class Decoder:
    """Makes inputs again; ``results`` are those of the steps so far."""

    def __init__(self, results: List[Any]) -> None:
        self.results = results

    def decode(self, spec: Any) -> Any:
        """The value of an input. Raises whatever its classes raise."""
        if not isinstance(spec, list):
            return spec
        kind, rest = spec[0], spec[1:]
        if kind in ("l", "t", "S", "F"):
            make = {"l": list, "t": tuple, "S": set, "F": frozenset}[kind]
            return make([self.decode(item) for item in rest[0]])
        if kind == "d":
            return {self.decode(key): self.decode(item) for key, item in rest[0]}
        if kind == "k":
            return self.results[rest[0]]
        if kind == "g":
            return found_at(rest[0], rest[1])
        if kind == "m":
            return importlib.import_module(rest[0])
        if kind == "a":
            return getattr(self.decode(rest[0]), rest[1])
        if kind == "R":
            return self.put_together(*[self.decode(part) for part in rest])
        return simple_value(kind, rest)

    def put_together(self, make: Any, arguments: Any, state: Any, items: Any, pairs: Any) -> Any:
        """An object from its parts, as ``copy`` puts them together."""
        made = make(*arguments) if make is not copyreg.__newobj__ else arguments[0].__new__(*arguments)  # type: ignore[attr-defined]
        if state is not None:
            if hasattr(made, "__setstate__"):
                made.__setstate__(state)
            else:
                attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
                for name, value in {**(attributes or {}), **(slots or {})}.items():
                    object.__setattr__(made, name, value)
        for item in items or ():
            made.append(item)
        for key, value in pairs or ():
            made[key] = value
        return made


def simple_value(kind: str, rest: List[Any]) -> Any:
    """The value that ``plain`` encoded."""
    if kind == "i":
        return int(rest[0], 16 if "x" in rest[0] else 10)
    if kind == "f":
        return float(rest[0])
    if kind == "c":
        return complex(float(rest[0]), float(rest[1]))
    if kind == "s":
        return rest[0]
    data = base64.b64decode(rest[0])
    return data if kind == "b" else bytearray(data)
