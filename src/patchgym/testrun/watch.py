"""Notes what code under test does to the machinery that judges it. Runs inside a sandbox: only the standard library.

Two things are watched. *What decides*: the functions and classes of pytest, pluggy, unittest, the builtins and the
runner are taken down before anything of the workspace is imported, and compared at moments drawn at random and at the
end; a change that is still there between two tests is proof. *What looks*: an audit hook, which cannot be removed,
notes events that lead to the machinery (frames, the garbage collector, ctypes, code objects, other processes, files of
the tests) where code of the workspace that is no test asks for them; most of these are no proof.
"""

import builtins
import contextlib
import importlib
import os
import sys
import threading
import types
from typing import Any, Dict, FrozenSet, Iterator, List, Optional, Set, Tuple

MOST_NOTES = 40
LONGEST = 200
DEEPEST = 4
LEGACY = "_pytest.legacypath"
DECIDING = [
    "_pytest.runner",
    "_pytest.reports",
    "_pytest.python",
    "_pytest.python_api",
    "_pytest.raises",
    "_pytest.outcomes",
    "_pytest.skipping",
    "_pytest.main",
    "_pytest.nodes",
    "_pytest.fixtures",
    "_pytest.unittest",
    "_pytest._code.code",
    "_pytest.assertion.rewrite",
    "_pytest.assertion.util",
    "_pytest.config",
    "_pytest.mark.structures",
    "pluggy._hooks",
    "pluggy._callers",
    "pluggy._manager",
    "unittest.case",
    LEGACY,
    "operator",
    "json",
    "json.encoder",
    "time",
]
EVENTS = frozenset(
    [
        "sys._getframe",
        "sys._current_frames",
        "sys._current_exceptions",
        "sys.settrace",
        "sys.setprofile",
        "sys.addaudithook",
        "gc.get_objects",
        "gc.get_referrers",
        "gc.get_referents",
        "code.__new__",
        "object.__getattr__",
        "object.__setattr__",
        "open",
        "os.fork",
        "os.forkpty",
        "os.exec",
        "os.posix_spawn",
        "os.kill",
        "os.killpg",
        "subprocess.Popen",
        "os.listdir",
        "os.scandir",
        "os.remove",
        "os.rename",
        "ctypes.dlopen",
        "ctypes.dlsym",
        "ctypes.addressof",
        "ctypes.cdata",
        "ctypes.PyObj_FromPtr",
        "pty.spawn",
    ]
)
LOOKING = ("tb_frame",)
SETTING = ("__code__", "__defaults__", "__kwdefaults__", "__class__", "__bases__")
FILES = frozenset(["open", "os.listdir", "os.scandir", "os.remove", "os.rename"])
THROUGH = (os.sep + "inspect.py",)


class Watch:
    """``root`` is the workspace, ``tests`` the test files in it, ``own`` the objects of the runner that report,
    ``private`` the descriptors that nobody but the runner has business with."""

    def __init__(self, root: str, tests: List[str], own: List[Any], private: List[int]) -> None:
        self.root = os.path.join(root, "")
        self.tests = frozenset(os.path.join(root, path) for path in tests)
        self.own = own
        self.notes: Dict[Tuple[str, str, str], Dict[str, Any]] = {}
        self.busy: Set[int] = set()
        self.guard = os.getppid()
        self.private = frozenset("/proc/%s/fd/%d" % (me, one) for me in ("self", os.getpid()) for one in private)
        self.hooks: Dict[str, List[Any]] = {}
        self.manager: Any = None
        for name in DECIDING:  # what pytest or the code under test would import later would not be watched
            with contextlib.suppress(ImportError):  # of another version of pytest
                importlib.import_module(name)
        self.legacy = dict(vars(sys.modules[LEGACY])) if LEGACY in sys.modules else {}
        self.loaded = {name: module for name, module in sys.modules.items() if name.split(".", 1)[0] in ROOTS}
        self.before = list(self.snapshot())
        self.names = {label: (space, frozenset(space)) for space, label in self.spaces()}
        self.replaced = [replaced(one) for one in own]
        self.tracing = sys.gettrace(), sys.getprofile()

    def begin(self) -> None:
        """Note from here on what is asked for. It cannot be ended."""
        hook, busy, here = self.asked, self.busy, threading.get_ident
        events = EVENTS

        def listen(event: str, args: Tuple[Any, ...]) -> None:
            if event in events and here() not in busy:
                me = here()
                busy.add(me)
                try:
                    hook(event, args)
                finally:
                    busy.discard(me)

        sys.addaudithook(listen)

    def asked(self, event: str, args: Tuple[Any, ...]) -> None:
        """One event: who asked for it, and for what."""
        what = ""
        proof = False
        if event == "object.__getattr__" or event == "object.__setattr__":
            name = args[1]
            if name not in (LOOKING if event == "object.__getattr__" else SETTING):
                return
            what = str(name)
            if event == "object.__setattr__":
                target = args[0]
                module = getattr(target, "__module__", None)
                proof = isinstance(module, str) and module in DECIDING
                what = "%s of %s.%s" % (name, module, getattr(target, "__qualname__", "?"))
        elif event in FILES:
            found = self.telling(args[0] if args else None)
            if found is None:
                return
            what, proof = found
        elif event in ("os.kill", "os.killpg"):
            what = str(args[0])
            proof = args[0] in (self.guard, 1)
        elif args:
            what = str(args[0]) if isinstance(args[0], (str, int)) else ""
        caller = self.caller()
        if caller is not None:
            self.note(event, what, proof, *caller)

    def telling(self, path: Any) -> Optional[Tuple[str, bool]]:
        """Whether a file tells of the tests or leads to the runner, and whether no honest code opens it."""
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str):
            return None
        try:
            full = os.path.abspath(path)
        except OSError:  # the working folder is gone
            return None
        if full in self.private or full.startswith("/proc/%d/" % self.guard) or full == "/proc/self/mem":
            return full, True
        if full in self.tests or full.startswith(("/proc/self/", "/proc/%d/" % os.getpid(), "/run/patchgym")):
            return full[len(self.root) :] if full.startswith(self.root) else full, False
        return None

    def caller(self) -> Optional[Tuple[str, int, str]]:
        """The code of the workspace that asked, no test file; None where another did."""
        try:
            frame: Optional[types.FrameType] = sys._getframe(3)  # beyond this, ``asked`` and the hook
        except ValueError:  # the start of a thread
            return None
        for _ in range(DEEPEST):
            if frame is None:
                return None
            code = frame.f_code
            name = code.co_filename
            if name.startswith("<") or name.endswith(THROUGH):
                frame = frame.f_back
                continue
            full = name if name.startswith("/") else os.path.join(self.root, name)
            if full.startswith(self.root) and full not in self.tests:
                return full[len(self.root) :], frame.f_lineno, getattr(code, "co_qualname", code.co_name)
            return None
        return None

    def note(self, event: str, what: str, proof: bool, path: str = "", line: int = 0, function: str = "") -> None:
        """Keep one thing that was seen, once for each place."""
        key = event, path, function if path else what
        kept = self.notes.get(key)
        if (kept is None and len(self.notes) < MOST_NOTES) or (kept is not None and proof and not kept["proof"]):
            self.notes[key] = {
                "event": event,
                "what": what[:LONGEST],
                "path": path[:LONGEST],
                "line": line,
                "function": function[:LONGEST],
                "proof": proof,
            }

    def compare(self) -> None:
        """Note what decides and is not what it was."""
        me = threading.get_ident()
        self.busy.add(me)
        try:
            for space, name, value, function, code, label in self.before:
                now = space.get(name)
                other = now is not value and not self.of_pytest(label, name, now)
                if other or (code is not None and function.__code__ is not code):
                    self.note("changed", label + "." + name, True)
            for label, (space, names) in self.names.items():
                if len(space) != len(names):
                    self.compare_names(label, space, names)
            for one, known in zip(self.own, self.replaced):  # noqa: B905  (Python 3.9 knows no strict)
                if replaced(one) != known:
                    self.note("changed", "the runner's " + type(one).__name__, True)
            for name, module in self.loaded.items():
                if sys.modules.get(name) is not module:
                    self.note("changed", "sys.modules[%r]" % name, True)
            if (sys.gettrace(), sys.getprofile()) != self.tracing:
                self.note("tracing", "sys.settrace or sys.setprofile is in use", False)
            self.compare_hooks()
        finally:
            self.busy.discard(me)

    def compare_names(self, label: str, space: Any, names: FrozenSet[str]) -> None:
        """Note what was added to a class, or to a module under the name of a builtin: it is found first."""
        for name in set(space) - names:
            value = space.get(name)
            member = label in self.classes and isinstance(value, MEMBERS) and not self.of_pytest(label, name, value)
            if name in vars(builtins) or member:
                self.note("changed", label + "." + name, True)

    def of_pytest(self, label: str, name: str, value: Any) -> bool:
        """Whether pytest itself put this there: its plug-in for old names sets ``Class.name`` to its own function
        ``Class_name`` when it starts, and that function is as it was."""
        function = self.legacy.get("%s_%s" % (label.rpartition(".")[2], name))
        return function is not None and behind(value) is function

    def keep_hooks(self, manager: Any) -> None:
        """Take down which hooks there are, before anything of the workspace is collected."""
        self.manager = manager
        self.hooks = {name: [part.function for part in parts] for name, parts in implementations(manager)}

    def compare_hooks(self) -> None:
        """Note hooks that are gone, and those that code of the workspace added which is no conftest."""
        for name, parts in implementations(self.manager) if self.manager is not None else ():
            known = self.hooks.get(name, [])
            now = [part.function for part in parts]
            if any(not any(one is other for other in now) for one in known):
                self.note("changed", "a hook of %s is gone" % name, True)
            for one in now if len(now) != len(known) else ():
                if not any(one is other for other in known):
                    self.compare_hook(name, one)

    def compare_hook(self, name: str, function: Any) -> None:
        """Note a hook that was added, where no conftest did."""
        code = getattr(function, "__code__", None)
        path = code.co_filename if code is not None else ""
        inside = path.startswith(("<", self.root)) or not path
        if inside and path not in self.tests and os.path.basename(path) != "conftest.py":
            self.note("changed", "a hook of %s was added by %s" % (name, path or "something without code"), True)

    def spaces(self) -> Iterator[Tuple[Any, str]]:
        """The modules and classes that decide: what they hold, as it is at any time, and their names."""
        self.classes: Set[str] = set()
        yield vars(builtins), "builtins"
        for name in DECIDING:
            module = sys.modules.get(name)
            if module is not None:
                yield vars(module), name
                for inner, value in list(vars(module).items()):
                    if isinstance(value, type) and value.__module__ == name:
                        self.classes.add(name + "." + inner)
                        yield vars(value), name + "." + inner
        for one in self.own:
            yield vars(type(one)), "the runner's " + type(one).__name__

    def snapshot(self) -> Iterator[Tuple[Any, str, Any, Any, Any, str]]:
        """What decides: where it is held under which name, what it is, and the function and the code behind that.
        Nothing here asks for an ``id``, which would be an event each."""
        for space, label in self.spaces():
            for name, value in list(space.items()):
                if isinstance(value, DECISIVE) and (label == "builtins" or not name.startswith("__")):
                    function = behind(value)
                    code = function.__code__ if isinstance(function, types.FunctionType) else None
                    yield space, name, value, function, code, label

    def all(self) -> List[Dict[str, Any]]:
        """Everything that was noted."""
        return list(self.notes.values())


ROOTS: FrozenSet[str] = frozenset(["_pytest", "pytest", "pluggy", "unittest", "operator", "json", "builtins", "time"])
MEMBERS = (types.FunctionType, staticmethod, classmethod, property)
DECISIVE = (*MEMBERS, types.BuiltinFunctionType, type)


def behind(value: Any) -> Any:
    """The function that a property or a method of a class stands for."""
    return value.fget if isinstance(value, property) else getattr(value, "__func__", value)


def replaced(one: Any) -> List[str]:
    """What an object has of its own in the place of its class's functions."""
    return sorted(name for name, value in vars(one).items() if callable(value))


def implementations(manager: Any) -> Iterator[Tuple[str, List[Any]]]:
    """The implementations of every hook, by its name."""
    for name, caller in list(vars(manager.hook).items()):
        if name.startswith("pytest_"):
            yield name, caller.get_hookimpls()
