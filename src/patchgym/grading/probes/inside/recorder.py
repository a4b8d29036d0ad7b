"""A pytest plug-in that records calls while the tests run: those that test code makes into the workspace's sources and
that run a touched function (the boundary that tests see), and those of the touched functions themselves.

It watches with ``sys.settrace``, which changes no object of the program: generators, properties, decorators and
comparisons are seen as they are. Only frames that are recorded are watched to their end, and none line by line;
``sys.setprofile`` would be told of every call into C as well. Arguments are encoded before the call begins. An object
that a test made by a call is not stored: the program of a later call makes it again, by that call and those that the
test made on it since.

One record a call goes to ``send``: ``{"test", "function", "boundary", "steps", "before", "seen"}``, where ``before`` is
a digest of what the arguments held and ``seen`` what was told of the result there and then (absent where nothing can be
said), and one ``{"left_out": {reason: calls}}`` at the end.
"""

import inspect
import json
import os
import sys
from collections import Counter
from types import CodeType, FrameType
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

import pytest

from .calling import digest, told_before
from .resolving import Resolver, Target
from .telling import Teller, TooLarge
from .values import Encoder, Places, Unsayable

MOST_STEPS = 12
MOST_LOGGED = 600
MOST_KEPT = 400
MOST_SENT = 3000
FRESH = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
HARNESS = ("_pytest", "unittest", "pluggy")


class Kind(NamedTuple):
    """Where code comes from (``source``, ``test``, ``harness`` or nothing of these), whether it is a touched function,
    whether a call of it only makes a generator or the like, and whether it is a lambda or a comprehension."""

    place: str
    touched: bool
    fresh: bool
    nameless: bool


class Step:
    """One call by a test: what it was, what it needed, and whether it ran a touched function."""

    def __init__(self, call: Optional[Dict[str, Any]], needs: Set[int], why: str, name: str) -> None:
        self.call, self.needs, self.why, self.name = call, needs, why, name
        self.touches = False
        self.before = ""
        self.seen: Any = None
        self.told = False


class Recorder:
    """Records the calls of ``argument``: ``root``, ``tests`` (test files), ``touched`` (``path:qualified name``)."""

    def __init__(self, argument: Dict[str, Any], send: Callable[..., None]) -> None:
        self.send = send
        self.places = Places(argument["root"], argument["tests"])
        self.touched = {tuple(name.split(":", 1)) for name in argument["touched"]}
        self.resolver = Resolver(self.places)
        self.left_out: "Counter[str]" = Counter()
        self.kinds: Dict[CodeType, Kind] = {}
        self.direct: "Counter[str]" = Counter()
        self.sent: Set[str] = set()
        self.test = ""
        self.forget()

    def forget(self) -> None:
        """Begin with a new test."""
        self.steps: List[Step] = []
        self.made: Dict[int, Tuple[Any, int]] = {}
        self.uses: Dict[int, List[int]] = {}
        self.open: List[Tuple[FrameType, int]] = []
        self.inner: List[Tuple[FrameType, Dict[str, Any], str, str]] = []
        self.frames: Set[FrameType] = set()
        self.generators: Dict[FrameType, int] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Any:
        """One test, with what it sets up."""
        self.test = item.nodeid
        self.forget()
        yield
        self.finish()

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_fixture_setup(self) -> Any:
        """Watch what a fixture does; pytest's own work is not watched, which is most of it."""
        yield from self.watched()

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_call(self) -> Any:
        """Watch the test itself."""
        yield from self.watched()

    def watched(self) -> Any:
        """Watch until the hook is over."""
        before = sys.gettrace()
        sys.settrace(self.called)
        try:
            yield
        finally:
            sys.settrace(before)

    def pytest_sessionfinish(self) -> None:
        """Say what could not be recorded."""
        self.send(beside={"left_out": dict(self.left_out)})

    def called(self, frame: FrameType, event: str, nothing: Any) -> Any:
        """Called by the interpreter for each call of a Python function; told nothing while it runs itself."""
        kind = self.kinds.get(frame.f_code) or self.kind_of(frame.f_code)
        if kind.place != "source" or not self.entered(frame, kind):
            return None
        frame.f_trace_lines = False
        return self.ended

    def ended(self, frame: FrameType, event: str, result: Any) -> Any:
        """Called where a frame that is recorded ends; ``result`` is None also where it raised."""
        if event == "return":
            if self.open and self.open[-1][0] is frame:
                self.left(frame, result)
            if self.inner and self.inner[-1][0] is frame:
                self.inner_left(frame, result)
        return self.ended

    def kind_of(self, code: CodeType) -> Kind:
        """What has to be known of code."""
        known = self.kinds.get(code)
        if known is None:
            name = code.co_filename
            place = self.places.of(name) if not name.startswith("<") else ""
            if not place and any(os.sep + part + os.sep in name for part in HARNESS):
                place = "harness"
            touched = place == "source" and self.is_touched(code)
            fresh = bool(code.co_flags & FRESH)
            known = self.kinds[code] = Kind(place, touched, fresh, code.co_name.startswith("<"))
        return known

    def is_touched(self, code: CodeType) -> bool:
        path = os.path.relpath(os.path.realpath(code.co_filename), self.places.root)
        names = [name for at, name in self.touched if at == path]
        whole = getattr(code, "co_qualname", None)  # from 3.11 on
        if whole is not None:
            return whole.replace(".<locals>", "") in names
        return any(name.rsplit(".", 1)[-1] == code.co_name for name in names)

    def entered(self, frame: FrameType, kind: Kind) -> bool:
        """A function of the workspace begins, or a generator goes on; whether its end is waited for."""
        again = kind.nameless or (kind.fresh and frame in self.frames)
        if again and not kind.touched:
            return False
        if not again:
            if kind.fresh:
                self.frames.add(frame)
            if len(self.steps) < MOST_LOGGED and self.from_test(frame):
                self.steps.append(self.step(frame))
                if kind.fresh:
                    self.generators[frame] = len(self.steps) - 1
                else:
                    self.open.append((frame, len(self.steps) - 1))
        if kind.touched:
            for _, step in self.open:
                self.steps[step].touches = True
            if self.generators:
                self.mark_generators(frame)
            if not again:
                self.inner_entered(frame)
        opened = bool(self.open) and self.open[-1][0] is frame
        return opened or (bool(self.inner) and self.inner[-1][0] is frame)

    def mark_generators(self, frame: FrameType) -> None:
        """A touched function runs inside the generators that run now."""
        at: Optional[FrameType] = frame
        while at is not None:
            if at in self.generators:
                self.steps[self.generators[at]].touches = True
            at = at.f_back

    def from_test(self, frame: FrameType) -> bool:
        """Whether test code called it, by itself or through pytest's and unittest's own helpers."""
        caller = frame.f_back
        while caller is not None:
            place = (self.kinds.get(caller.f_code) or self.kind_of(caller.f_code)).place
            if place != "harness":
                return place == "test"
            caller = caller.f_back
        return False

    def step(self, frame: FrameType) -> Step:
        """The step that a call from a test makes."""
        name = frame.f_code.co_name
        try:
            target = self.resolver.target(frame)
        except Unsayable as reason:
            return Step(None, set(), str(reason), name)
        return self.encoded(target)

    def encoded(self, target: Target) -> Step:
        encoder = Encoder(self.places, lambda value: self.made.get(id(value), (None, None))[1])
        receivers = [value for value in target.values() if id(value) in self.made]
        number = len(self.steps)
        try:
            call, why = call_of(encoder, target), ""
        except Unsayable as reason:
            call, why = None, str(reason)
        needs = set(encoder.steps)
        for value in receivers:
            needs.update(self.uses.get(id(value), ()))
            self.uses.setdefault(id(value), []).append(number)
        if target.makes is not None and call is not None:
            self.made[id(target.makes)] = target.makes, number
        step = Step(call, needs, why, target.name)
        step.before = self.before(target)
        return step

    def before(self, target: Target) -> str:
        """What the arguments hold, for short: a program must come to the same before it makes the call."""
        values = [target.of, *target.args] if target.attribute is not None else target.args
        named = [target.kwargs[name] for name in sorted(target.kwargs)]
        return digest([told_before(self.places, value) for value in [*values, *named]])

    def left(self, frame: FrameType, result: Any) -> None:
        """A call from a test ended; ``result`` is None also where it raised."""
        _, number = self.open.pop()
        step = self.steps[number]
        if frame.f_code.co_name == "__init__":
            return
        if step.call is not None and self.can_be_made(result) and id(result) not in self.made:
            self.made[id(result)] = result, number
        self.see(step, result)

    def see(self, step: Step, result: Any) -> None:
        teller = Teller(self.places)
        if teller.is_iterator(result):
            return
        try:
            step.seen, step.told = teller.tell(result), True
        except (TooLarge, Exception):  # noqa: BLE001 -- the code under test may raise anything; then nothing was seen
            step.told = False

    def can_be_made(self, value: Any) -> bool:
        """Whether an object is worth keeping as the result of a step."""
        return bool(self.places.of_class(type(value))) or Teller(self.places).is_iterator(value)

    def inner_entered(self, frame: FrameType) -> None:
        """A touched function begins, in whatever depth; its outermost call is recorded where it can be told alone."""
        if (self.open and self.open[-1][0] is frame) or any(one[0].f_code is frame.f_code for one in self.inner):
            return
        name = frame.f_code.co_name
        if self.direct[name] >= MOST_KEPT or frame.f_code.co_flags & FRESH:
            return
        self.direct[name] += 1
        try:
            target = self.resolver.target(frame)
            call = call_of(Encoder(self.places, lambda value: None), target)
        except Unsayable as reason:
            if not self.open and not self.generators:
                self.left_out[str(reason)] += 1
            return
        self.inner.append((frame, call, target.name, self.before(target)))

    def inner_left(self, frame: FrameType, result: Any) -> None:
        """A touched function ended."""
        _, call, name, before = self.inner.pop()
        step = Step(call, set(), "", name)
        step.before = before
        self.see(step, result)
        self.write(name, False, [call], step)

    def finish(self) -> None:
        """Write what a test did."""
        for number, step in enumerate(self.steps):
            if not step.touches:
                continue
            if step.call is None:
                self.left_out[step.why] += 1
                continue
            try:
                self.write(step.name, True, self.program(number), step)
            except Unsayable as reason:
                self.left_out[str(reason)] += 1
        self.forget()

    def program(self, number: int) -> List[Any]:
        """A step with those that it needs, in their order and numbered anew. Raises Unsayable."""
        needed, waiting = {number}, [number]
        while waiting:
            for other in self.steps[waiting.pop()].needs - needed:
                needed.add(other)
                waiting.append(other)
        if len(needed) > MOST_STEPS:
            raise Unsayable("object with a long history")
        order = sorted(needed)
        calls = [self.steps[at].call for at in order]
        if None in calls:
            raise Unsayable("object that was made from what has no text")
        places = {at: place for place, at in enumerate(order)}
        return [renumbered(call, places) for call in calls]

    def write(self, name: str, boundary: bool, steps: List[Any], step: Step) -> None:
        text = json.dumps([boundary, steps])
        if text in self.sent or len(self.sent) >= MOST_SENT:
            return
        self.sent.add(text)
        record = {"test": self.test, "function": name, "boundary": boundary, "steps": steps, "before": step.before}
        self.send(beside={**record, "seen": step.seen} if step.told else record)


def call_of(encoder: Encoder, target: Target) -> Dict[str, Any]:
    """A call as a step. Raises Unsayable."""
    of = target.named
    if of is None:
        of = encoder.encode(target.of)
        of = of if target.attribute is None else ["a", of, target.attribute]
    kwargs = {key: encoder.encode(value) for key, value in target.kwargs.items()}
    return {"of": of, "args": [encoder.encode(value) for value in target.args], "kwargs": kwargs}


def renumbered(spec: Any, places: Dict[int, int]) -> Any:
    """An input or a step with the numbers of steps replaced."""
    if isinstance(spec, dict):
        return {key: renumbered(value, places) for key, value in spec.items()}
    if isinstance(spec, list):
        if len(spec) == 2 and spec[0] == "k" and isinstance(spec[1], int) and not isinstance(spec[1], bool):
            return ["k", places[spec[1]]]
        return [renumbered(value, places) for value in spec]
    return spec


def plugin(argument: Dict[str, Any], send: Callable[..., None]) -> Recorder:
    """The plug-in."""
    return Recorder(argument, send)
