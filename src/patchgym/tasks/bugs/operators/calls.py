"""Operators on calls: arguments out of order or left out, a near relative called instead, a call left out."""

from collections.abc import Iterator
from itertools import pairwise

import libcst as cst

from patchgym.tasks.bugs.operators.base import (
    Edit,
    Place,
    kept_together,
    looks_at,
    name_called,
    outer_text,
    plain_arguments,
    replace,
    swap,
    without_item,
)

_PAIRS = (
    ("append", "extend"),
    ("startswith", "endswith"),
    ("lstrip", "rstrip"),
    ("find", "rfind"),
    ("index", "rindex"),
    ("split", "rsplit"),
    ("partition", "rpartition"),
    ("removeprefix", "removesuffix"),
    ("ljust", "rjust"),
    ("upper", "lower"),
    ("keys", "values"),
    ("add", "discard"),
    ("union", "intersection"),
    ("issubset", "issuperset"),
    ("match", "search"),
    ("isdigit", "isalpha"),
    ("appendleft", "append"),
    ("popleft", "pop"),
    ("bisect_left", "bisect_right"),
    ("items", "keys"),
)
_METHODS = {**{right: left for left, right in reversed(_PAIRS)}, **dict(reversed(_PAIRS))}
_FUNCTIONS = {
    "any": "all",
    "all": "any",
    "min": "max",
    "max": "min",
    "floor": "ceil",
    "ceil": "floor",
    "islice": "takewhile",
    "takewhile": "dropwhile",
    "dropwhile": "takewhile",
    "filter": "filterfalse",
    "bisect_left": "bisect_right",
    "bisect_right": "bisect_left",
}
_BUILT_IN = frozenset({"any", "all", "min", "max"})
_CLEANERS = frozenset(
    {"strip", "lstrip", "rstrip", "lower", "upper", "casefold", "title", "capitalize", "expandtabs", "normalize"}
    | {"removeprefix", "removesuffix", "resolve", "absolute", "splitlines", "flatten", "encode", "decode"}
)
_CONVERSIONS = frozenset({"int", "str", "float", "tuple", "bool", "abs", "iter", "frozenset", "bytes", "round", "repr"})
_WITH_DEFAULT = {"get": 2, "pop": 2, "getattr": 3, "next": 2, "setdefault": 2}


@looks_at(cst.Call)
def swap_arguments(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """Two neighbouring positional arguments of a call change places."""
    if isinstance(node, cst.Call):
        for left, right in pairwise(node.args):
            if not (left.star or right.star or left.keyword or right.keyword):
                yield swap(left.value, right.value, place)


@looks_at(cst.Call)
def swap_keywords(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """Two neighbouring keyword arguments of a call get each other's value."""
    if isinstance(node, cst.Call):
        for left, right in pairwise(node.args):
            if left.keyword and right.keyword:
                yield swap(left.value, right.value, place)


@looks_at(cst.Call)
def drop_keyword(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A keyword argument of a call is left out, so that its default counts."""
    if isinstance(node, cst.Call):
        yield from _dropped(node, [at for at, argument in enumerate(node.args) if argument.keyword], place)


@looks_at(cst.Call)
def drop_star(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """Arguments that are passed on (``*args``, ``**options``) are left out of a call."""
    if isinstance(node, cst.Call):
        yield from _dropped(node, [at for at, argument in enumerate(node.args) if argument.star], place)


@looks_at(cst.Call)
def drop_default(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """The default of a look-up (``d.get(k, x)``, ``getattr(o, n, x)``, ``next(i, x)``) is left out."""
    if isinstance(node, cst.Call) and plain_arguments(node) is not None:
        wanted = _WITH_DEFAULT.get(name_called(node))
        if wanted is not None and len(node.args) == wanted:
            yield from _dropped(node, [wanted - 1], place)


@looks_at(cst.Call)
def drop_method(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A call that tidies a value up (``.strip()``, ``.lower()``) is left out of its chain."""
    match node:
        case cst.Call(func=cst.Attribute(value=value, attr=cst.Name(name))) if name in _CLEANERS:
            yield replace(node, outer_text(value, place), place)
        case _:
            pass


@looks_at(cst.Call)
def drop_conversion(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A conversion (``int(x)``, ``tuple(x)``) is left out."""
    match node:
        case cst.Call(func=cst.Name(name), args=[cst.Arg(star="", keyword=None, value=value)]):
            if name in _CONVERSIONS and not isinstance(value, cst.GeneratorExp):
                yield replace(node, kept_together(value, place), place)
        case _:
            pass


@looks_at(cst.Call)
def sibling_function(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A function's counterpart is called: ``any`` for ``all``, ``min`` for ``max``."""
    match node:
        case cst.Call(func=cst.Name(name) as called) if name in _BUILT_IN:
            yield replace(called, _FUNCTIONS[name], place)
        case cst.Call(func=cst.Attribute(value=cst.Name(), attr=cst.Name(name) as called)) if name in _FUNCTIONS:
            yield replace(called, _FUNCTIONS[name], place)
        case _:
            pass


@looks_at(cst.Call)
def sibling_method(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A method's counterpart is called: ``extend`` for ``append``, ``endswith`` for ``startswith``."""
    match node:
        case cst.Call(func=cst.Attribute(attr=cst.Name(name) as called)) if name in _METHODS:
            yield replace(called, _METHODS[name], place)
        case _:
            pass


@looks_at(cst.IndentedBlock)
def drop_super(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A statement that hands on to ``super()`` is left out."""
    if isinstance(node, cst.IndentedBlock):
        for statement in node.body:
            match statement:
                case cst.SimpleStatementLine(body=[cst.Expr(value=cst.Call() as call)]) if calls_super(call):
                    yield replace(statement, None if len(node.body) > 1 else "pass", place)
                case _:
                    pass


def calls_super(node: cst.Call) -> bool:
    """Whether a call is one of a method of ``super()``."""
    match node.func:
        case cst.Attribute(value=cst.Call(func=cst.Name("super"))):
            return True
        case _:
            return False


def _dropped(node: cst.Call, which: list[int], place: Place) -> Iterator[Edit]:
    """Each of some arguments left out, with a comma where there are others."""
    spans = [(place.start(argument), place.outer(argument.value)[1]) for argument in node.args]
    for at in which:
        start, end = without_item(spans, at) if len(spans) > 1 else spans[0]
        yield Edit(start, end, "")
