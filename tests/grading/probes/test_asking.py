"""The teller in the real sandbox: what code does that was not meant to be asked."""

import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.grading.probes.ask import ask, question
from patchgym.grading.probes.compare import Told
from patchgym.records import Environment
from patchgym.testrun import built_environment
from tests.workshop import here, sandboxes, tree_of

MODULE = """
import os, sys, time, random

def double(value):
    return value * 2

def endless():
    while True:
        pass

def deaf():
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass

def deep(value=0):
    return deep(value + 1)

def large():
    return "x" * 100_000_000

def many():
    return [0] * 10_000_000

def gone():
    os.kill(os.getpid(), 9)

def leave():
    sys.exit(0)

def really_leave():
    os._exit(0)

def fork():
    return os.fork() and 1

def sorts(values):
    values.sort()

def prints():
    print("seen")

def writes():
    with open("left.txt", "w") as stream:
        stream.write("x")

def counts(seen=[]):
    seen.append(1)
    return len(seen)

def loaded():
    return sorted({"pytest", "_pytest", "unittest"} & set(sys.modules))

def variables():
    return sorted(name for name in os.environ if name.startswith(("PATCHGYM", "PYTEST")))

def files():
    return sorted(name for root, _, names in os.walk(os.path.dirname(__file__)) for name in names)

class Dot:
    def __init__(self, number):
        self.number = number

def crowded():
    return [dot.number for dot in set(map(Dot, range(2)))]

class Box:
    def __init__(self, *items):
        self.items = list(items)

    def add(self, item):
        self.items.append(item)
        return self

    def total(self):
        return sum(self.items)
"""


def call(name: str, *args: JsonValue) -> list[JsonValue]:
    return [{"of": ["g", "shop", name], "args": list(args), "kwargs": {}}]


def asked(folder: Path, programs: list[list[JsonValue]], source: str = MODULE, seconds: float = 3.0) -> list[Told]:
    """What the programs come to, in their order; ``{}`` for what was never answered."""
    objects = ObjectStore(folder / "objects")
    tree = tree_of(objects, {"shop.py": source})
    environment = Environment(python=f"{sys.version_info.major}.{sys.version_info.minor}")
    questions = [question(steps) for steps in programs]

    async def told() -> dict[str, Told]:
        built = await built_environment(environment, here)
        with sandboxes(objects, folder) as factory:
            return await ask(factory, tree, tree, environment, built, questions, ["shop"], seconds=seconds)

    found = asyncio.run(told())
    return [found.get(one.id, {}) for one in questions]


ENDS = {
    "endless": {"ended": "time"},
    "deaf": {"ended": "time"},
    "deep": {"ended": "recursion"},
    "large": {"ended": "large"},
    "many": {"ended": "large"},
    "gone": {"ended": "early"},
    "really_leave": {"ended": "early"},
}


def test_what_one_call_does_ends_that_call_alone(tmp_path: Path) -> None:
    programs = [one for name in ENDS for one in (call(name), call("double", ["i", "4"]))]
    told = asked(tmp_path, programs, seconds=2.0)
    assert dict(zip(ENDS, told[::2], strict=True)) == ENDS
    assert [one["result"] for one in told[1::2]] == [["i", "8"]] * len(ENDS)


def test_what_hangs_on_where_objects_lie_comes_out_one_way_and_another(tmp_path: Path) -> None:
    told = asked(tmp_path, [call("crowded")] * 30)
    ways = Counter(str(one["result"]) for one in told)
    assert len(ways) == 2
    assert min(ways.values()) > 3  # one of 30, were it not for what is made before each call


def test_an_exit_is_told_as_what_the_call_raises(tmp_path: Path) -> None:
    assert asked(tmp_path, [call("leave")])[0]["raised"] == "builtins.SystemExit"


def test_side_effects_are_told(tmp_path: Path) -> None:
    sorted_, printed, written = asked(
        tmp_path, [call("sorts", ["l", [["i", "2"], ["i", "1"]]]), call("prints"), call("writes")]
    )
    assert sorted_["after"] == {"0": ["l", [["i", "1"], ["i", "2"]]]}
    assert printed["printed"] == "seen\n"
    assert list(map(str, written["files"])) == ["left.txt"] if isinstance(written["files"], dict) else False


def test_no_call_sees_what_another_one_left_behind(tmp_path: Path) -> None:
    assert [one["result"] for one in asked(tmp_path, [call("counts")] * 3)] == [["i", "1"]] * 3


def test_where_code_is_asked_there_is_neither_pytest_nor_the_channel(tmp_path: Path) -> None:
    loaded, variables, files = asked(tmp_path, [call("loaded"), call("variables"), call("files")])
    assert loaded["result"] == ["l", []]
    assert variables["result"] == ["l", []]
    assert files["result"] == ["l", [["s", "shop.py"]]]


def test_an_object_is_made_again_by_the_calls_that_made_it(tmp_path: Path) -> None:
    program: list[JsonValue] = [
        {"of": ["g", "shop", "Box"], "args": [["i", "1"]], "kwargs": {}},
        {"of": ["a", ["k", 0], "add"], "args": [["i", "5"]], "kwargs": {}},
        {"of": ["a", ["k", 1], "total"], "args": [], "kwargs": {}},
    ]
    assert asked(tmp_path, [program])[0]["result"] == ["i", "6"]


def test_what_is_not_there_is_told_as_such(tmp_path: Path) -> None:
    assert asked(tmp_path, [call("no_such_function")])[0] == {"unmade": "AttributeError"}


@pytest.mark.parametrize(
    "head",
    ["print('noise' * 9999)", "import os; os.fork()", "import atexit, os; atexit.register(os._exit, 3)"],
    ids=["prints", "forks", "at exit"],
)
def test_an_import_that_does_more_than_defining_does_not_disturb(tmp_path: Path, head: str) -> None:
    told = asked(tmp_path, [call("double", ["i", "4"])], head + "\n" + MODULE)
    assert told[0]["result"] == ["i", "8"]


@pytest.mark.parametrize("head", ["raise SystemExit(0)", "raise ValueError"])
def test_a_module_that_cannot_be_imported_makes_no_call(tmp_path: Path, head: str) -> None:
    assert asked(tmp_path, [call("double", ["i", "4"])], f"{head}\n{MODULE}")[0].keys() <= {"unmade", "ended"}


@pytest.mark.parametrize("head", ["import os; os._exit(0)", "import os; os.kill(os.getpid(), 9)"])
def test_an_import_that_ends_the_process_answers_nothing(tmp_path: Path, head: str) -> None:
    assert asked(tmp_path, [call("double", ["i", "4"])], f"{head}\n{MODULE}") == [{}]


@pytest.mark.slow
def test_an_import_that_hangs_answers_nothing(tmp_path: Path) -> None:
    assert asked(tmp_path, [call("double", ["i", "4"])], f"while True: pass\n{MODULE}", seconds=0.5) == [{}]


FORGER = """
import os
for fd in range(3, 32):
    try:
        os.write(fd, b'{"id": 1}\\nnonsense\\n[[[\\n{"done": 0}\\n')
    except OSError:
        pass
"""


def test_whatever_is_written_to_the_channel_is_no_answer_of_its_own(tmp_path: Path) -> None:
    told = asked(tmp_path, [call("double", ["i", "4"])], FORGER + MODULE)
    assert told[0].get("result") == ["i", "8"]


def test_an_input_that_a_patch_cannot_make_is_its_own_answer(tmp_path: Path) -> None:
    broken: Any = ["R", ["g", "shop", "double"], ["t", []], None, None, None]
    assert asked(tmp_path, [call("double", broken)])[0] == {"unmade": "TypeError"}
