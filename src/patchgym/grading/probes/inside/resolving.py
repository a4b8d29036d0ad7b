"""Which call began a frame, so that another process can make it: a name to find the function by, and its arguments."""

import inspect
import sys
import types
from types import CodeType, FrameType
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .values import Places, Unsayable

OPERATORS = {
    "__call__": None,
    "__len__": ("builtins", "len"),
    "__str__": ("builtins", "str"),
    "__repr__": ("builtins", "repr"),
    "__hash__": ("builtins", "hash"),
    "__bool__": ("builtins", "bool"),
    "__iter__": ("builtins", "iter"),
    "__next__": ("builtins", "next"),
    "__getattr__": ("builtins", "getattr"),
    "__setattr__": ("builtins", "setattr"),
    "__contains__": ("operator", "contains"),
    **{
        "__%s__" % name: ("operator", "__%s__" % name)
        for name in (
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "getitem",
            "setitem",
            "delitem",
            "add",
            "sub",
            "mul",
            "truediv",
        )
    },
}


class Target(NamedTuple):
    """A call: ``named`` (an input that is the function) or ``of`` (an object) with ``attribute`` (none: the object
    itself is called); its arguments; ``makes`` the object that it makes, of a constructor."""

    name: str
    named: Optional[List[Any]]
    of: Any
    attribute: Optional[str]
    args: List[Any]
    kwargs: Dict[str, Any]
    makes: Any = None

    def values(self) -> List[Any]:
        """The receiver and the arguments."""
        return [self.of, *self.args, *self.kwargs.values()]


class Resolver:
    """Finds the function of a frame among the names of the workspace's modules."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.modules = 0
        self.functions: Dict[CodeType, List[Tuple[str, str, Any]]] = {}

    def target(self, frame: FrameType) -> Target:
        """The call that began ``frame``, whose arguments are still as they were. Raises Unsayable."""
        code = frame.f_code
        if "<" in code.co_name:
            raise Unsayable("lambda or comprehension")
        owner = self.owner(frame)
        if owner is not None:
            args, kwargs = arguments(frame, next(one for one in unwrapped(owner[1]) if one.__code__ is code))
            return self.method(code, owner, args, kwargs)
        name, function = self.function(frame)
        args, kwargs = arguments(frame, function)
        return Target(name[1], ["g", *name], None, None, args, kwargs)

    def method(self, code: CodeType, owner: Tuple[str, Any], args: List[Any], kwargs: Dict[str, Any]) -> Target:
        """A call on an object or a class; ``owner`` is the attribute's name and what the class holds there."""
        attribute, held = owner
        receiver, args = args[0], args[1:]
        kind = receiver if isinstance(receiver, type) else type(receiver)
        name = "{}.{}".format(kind.__qualname__, attribute)
        if attribute == "__init__":
            if getattr(kind, "__init__") is not held:  # noqa: B009 -- mypy takes the plain form for another one  # a constructor that a subclass calls
                raise Unsayable("constructor of a base class")
            return Target(name, None, kind, None, args, kwargs, makes=receiver)
        if attribute == "__new__":
            raise Unsayable("constructor of a value")
        if isinstance(held, property):
            if held.fget is None or held.fget.__code__ is not code:
                return Target(name, ["g", "builtins", "setattr"], None, None, [receiver, attribute, *args], kwargs)
            return Target(name, ["g", "builtins", "getattr"], None, None, [receiver, attribute], kwargs)
        operator = OPERATORS.get(attribute)
        if operator is not None and not kwargs:
            return Target(name, ["g", *operator], None, None, [receiver, *args], kwargs)
        return Target(name, None, receiver, None if attribute == "__call__" else attribute, args, kwargs)

    def owner(self, frame: FrameType) -> Optional[Tuple[str, Any]]:
        """The attribute of the first argument's class that this code belongs to, and what the class holds there; None
        where it is no method."""
        code = frame.f_code
        if code.co_argcount == 0 and not code.co_flags & inspect.CO_VARARGS:
            return None
        first = frame.f_locals.get(code.co_varnames[0])
        if code.co_argcount == 0:
            first = first[0] if isinstance(first, tuple) and first else None
        for kind in (first.__mro__ if isinstance(first, type) else ()) + type(first).__mro__:
            names = list(vars(kind)) if code.co_freevars and self.places.of_class(kind) else [code.co_name]
            for name in names:  # a function that a decorator made has the name of another one
                held = kind.__dict__.get(name)
                codes = [one.__code__ for one in unwrapped(held)] if held is not None else []
                if code in codes and (not code.co_freevars or same_closure(held, frame)):
                    return None if isinstance(held, staticmethod) else (name, held)
        return None

    def function(self, frame: FrameType) -> Tuple[Tuple[str, str], Any]:
        """The global name under which the function of a frame is found."""
        code = frame.f_code
        if code not in self.functions and self.modules != len(sys.modules):
            self.index()
        found = self.functions.get(code, [])
        if len(found) > 1 and code.co_freevars:  # made by one decorator: what they closed over tells them apart
            found = [one for one in found if same_closure(one[2], frame)]
        if not found:
            raise Unsayable("function without a global name")
        module, name, function = found[0]
        return (module, name), function

    def index(self) -> None:
        """Look through the workspace's modules."""
        self.modules = len(sys.modules)
        self.functions = {}
        for module in list(sys.modules.values()):
            if self.places.of(getattr(module, "__file__", None) or "") != "source":
                continue
            for name, value in list(vars(module).items()):
                self.note(module.__name__, name, value)
                if isinstance(value, type) and value.__module__ == module.__name__:
                    for inner, held in list(vars(value).items()):
                        if isinstance(held, staticmethod):
                            self.note(module.__name__, "{}.{}".format(name, inner), held)

    def note(self, module: str, name: str, value: Any) -> None:
        for function in unwrapped(value):
            known = self.functions.setdefault(function.__code__, [])
            if function.__module__ == module and name == function.__name__:
                known.insert(0, (module, name, function))  # its own home comes first
            else:
                known.append((module, name, function))


def unwrapped(held: Any) -> List[types.FunctionType]:
    """The functions that what a class or a module holds may run: itself, and what it wraps."""
    found: List[types.FunctionType] = []
    waiting = [held]
    while waiting and len(found) < 8:
        one = waiting.pop()
        if isinstance(one, types.FunctionType):
            found.append(one)
        if isinstance(one, (staticmethod, classmethod)):
            waiting.append(one.__func__)
        elif isinstance(one, property):
            waiting += [part for part in (one.fget, one.fset, one.fdel) if part is not None]
        elif isinstance(getattr(one, "__dict__", None), dict) and "__wrapped__" in one.__dict__:
            waiting.append(one.__dict__["__wrapped__"])
    return found


def same_closure(held: Any, frame: FrameType) -> bool:
    """Whether one of the functions behind ``held`` closed over the very values that a frame sees."""
    values = frame.f_locals
    for function in unwrapped(held):
        if function.__code__ is frame.f_code:
            cells = zip(frame.f_code.co_freevars, function.__closure__ or ())
            if all(values.get(name) is content(cell) for name, cell in cells):
                return True
    return False


def content(cell: Any) -> Any:
    """What a cell holds; None where it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def arguments(frame: FrameType, function: Any) -> Tuple[List[Any], Dict[str, Any]]:
    """What was passed. An argument that is its parameter's own default is left out."""
    code, values = frame.f_code, frame.f_locals
    names = code.co_varnames
    count, only = code.co_argcount, code.co_kwonlyargcount
    if any(name not in values for name in names[: count + only]):
        raise Unsayable("argument that an inner function shares")
    rest: Tuple[Any, ...] = ()
    at = count + only
    if code.co_flags & inspect.CO_VARARGS:
        rest, at = values[names[at]], at + 1
    more = values[names[at]] if code.co_flags & inspect.CO_VARKEYWORDS else {}
    defaults = dict(zip(names[count - len(function.__defaults__ or ()) : count], function.__defaults__ or ()))
    args: List[Any] = []
    kwargs: Dict[str, Any] = {}
    for name in names[:count]:
        if rest or name not in defaults or code.co_posonlyargcount:
            args.append(values[name])
        elif values[name] is not defaults[name]:
            kwargs[name] = values[name]
    if len(args) + len(kwargs) == count:  # none was left out
        args, kwargs = [values[name] for name in names[:count]], {}
    only_defaults = function.__kwdefaults__ or {}
    for name in names[count : count + only]:
        if name not in only_defaults or values[name] is not only_defaults[name]:
            kwargs[name] = values[name]
    return [*args, *rest], {**kwargs, **more}
