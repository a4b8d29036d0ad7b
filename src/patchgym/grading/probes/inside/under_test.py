"""A pytest plug-in that makes the same calls as the teller, but in the tests' own process: while one of the tests is
about to run, from a function that looks like it. Each call runs in a fork, so that the tests do not notice."""

import sys
import types
from typing import Any, Callable, Dict, List

import pytest

from .calling import told_in_child
from .values import Places


class UnderTest:
    """Makes the calls of ``argument`` (``calls``, ``places`` of the items before which they are made as shares between
    0 and 1, ``seconds`` for each, ``root``, ``tests``) and passes each told result to ``send``."""

    def __init__(self, argument: Dict[str, Any], send: Callable[..., None]) -> None:
        self.argument = argument
        self.send = send
        self.waiting: Dict[str, List[Any]] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: List[Any]) -> None:
        """Choose the tests before which the calls are made."""
        if not items:
            return
        calls, places = self.argument["calls"], self.argument["places"]
        for number, place in enumerate(places):
            item = items[min(int(place * len(items)), len(items) - 1)]
            self.waiting.setdefault(item.nodeid, []).extend(calls[number :: len(places)])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: Any) -> None:
        """Make the calls that wait for this test."""
        calls = self.waiting.pop(item.nodeid, [])
        if not calls:
            return
        places = Places(self.argument["root"], self.argument["tests"])
        disguised(item, make_calls)(calls, places, self.argument["seconds"], self.send, told_in_child)


def make_calls(calls: List[Any], places: Places, seconds: float, send: Any, made: Any) -> None:
    """Make each call and pass on what was told. It is run under the name of a test and knows no global."""
    for call in calls:
        send(beside={"id": call["id"], "told": made(call["steps"], places, seconds)})


def disguised(item: Any, function: Any) -> Any:
    """The function as if it stood in the file of a test and had its name."""
    code = function.__code__.replace(co_filename=str(item.fspath), co_name=item.name.split("[")[0])
    module = sys.modules.get(getattr(getattr(item, "module", None), "__name__", ""), None)
    return types.FunctionType(code, dict(vars(module)) if module is not None else {}, code.co_name)


def plugin(argument: Dict[str, Any], send: Callable[..., None]) -> UnderTest:
    """The plug-in."""
    return UnderTest(argument, send)
