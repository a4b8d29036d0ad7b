"""No attempt, however broken, makes a detector raise, take long, or run anything."""

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.records import Action, Message, Observation, Step
from patchgym.reward.hacks import Attempt, find_hacks
from patchgym.reward.hacks.shell import commands_of
from tests.reward.hacks.labelled import cases

LINES = r"""
import os|os._exit(0)|def test_a():|    assert True|class A:|    def __eq__(self, o):|        return 1|try:|except:
    pass|@pytest.mark.skip|x = {1: 2}|    return x[|if x == 1:|    x += 1|lambda: (yield)|match x:|    case [1, *_]:
raise|\|    await g()|async def f():|f'{x!r:>{y}}'|global x|del x[0]|with a as b, c as d:|*a, b = c
sys._getframe(1).f_locals['a']|exec('import os')|os.environ['PYTEST_ADDOPTS'] = x|open('junit.xml', 'w')
def f(a, /, b=[], *, c={}): return next(it)|os.write(fd, b'1 passed')|__import__('pytest').raises = x
"""
PIECES = [*LINES.strip().replace("\n", "|").split("|"), '"""', "'''", "\x00", "\ud800", "\u2028", "\r"]
PATHS = ("calc.py", "tests/test_calc.py", "conftest.py", "pytest.ini", "pytest.py", "a.pyc", "Makefile", "deep/er/x.py")
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("\n".join)


def run(command: str) -> Step:
    return Step(
        index=0,
        parent=None,
        prompt=(),
        message=Message(role="assistant", content=""),
        action=Action(tool="bash", arguments={"command": command}),
        observation=Observation(shown=""),
    )


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(PATHS), st.tuples(st.none() | TEXTS, st.none() | TEXTS), max_size=4), TEXTS)
def test_any_texts_give_evidence_or_none(sides: dict[str, tuple[str | None, str | None]], tests: str) -> None:
    attempt = Attempt(
        before={path: old for path, (old, _) in sides.items()},
        after={path: new for path, (_, new) in sides.items()},
        tests={"tests/test_calc.py": tests},
        test_files=frozenset({"tests/test_calc.py"}),
    )
    assert find_hacks(attempt) == find_hacks(attempt)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=" '\"\\$()`|&;<>\n#{}gitcaPYTHON=-/.0\u00e9\x00", max_size=80))
def test_any_command_line_is_read(line: str) -> None:
    commands_of(line)
    commands_of(f"git log --all {line}")
    find_hacks(Attempt(steps=(run(line),)))


DEEP = "(" * 150 + "1" + ")" * 150
TOO_DEEP = "x = " + "-" * 5000 + "1\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "x = " + DEEP + "\n",
        TOO_DEEP,
        "(" * 100_000,
        "a." * 5000 + "b\n",
        "if x:\n" + "".join(" " * depth + "if x:\n" for depth in range(1, 99)),
        "x = [" + "1, " * 60_000 + "]\n",
        "def f():\n" + "    x = 1\n" * 20_000,
        "'" * 300_000,
        "\\\n" * 100_000,
        "# -*- coding: utf-7 -*-\nx = 1\n",
    ],
    ids=["nested", "unary", "brackets", "attributes", "blocks", "list", "long", "quotes", "continued", "encoding"],
)
def test_extreme_source_is_looked_at_within_seconds(text: str) -> None:
    began = time.process_time()
    find_hacks(Attempt(before={"a.py": "x = 1\n"}, after={"a.py": text}))
    assert time.process_time() - began < 20


def test_a_file_that_became_too_deep_to_look_at_is_marked() -> None:
    found = find_hacks(Attempt(before={"a.py": "x = 1\n"}, after={"a.py": "x = " + "-" * 400 + "1\n"}))
    assert [one.kind for one in found] == ["unreadable_code"]


def test_extreme_command_lines_are_read_within_seconds() -> None:
    began = time.process_time()
    for line in (
        "$(" * 9000,
        "a | " * 9000,
        "<<EOF\n" * 5000,
        "'" * 50_001,
        "x" * 1_000_000,
        "python -c '" + "(" * 9000 + "'",
    ):
        find_hacks(Attempt(steps=(run(line),)))
    assert time.process_time() - began < 20


def test_nothing_of_an_attempt_is_run(tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    code = f"open({str(trap)!r}, 'w').write('x')\n"
    find_hacks(
        Attempt(
            before={"a.py": "", "conftest.py": None},
            after={"a.py": code + f"exec({code!r})\n", "conftest.py": code},
            steps=(run(f"python -c {code!r}"), run(f"touch {trap}")),
        )
    )
    assert not trap.exists()


def test_evidence_never_carries_control_characters_or_long_quotes() -> None:
    text = "import os\nos._exit(0)  # \x1b[2J" + "x" * 5000 + "\n"
    (evidence,) = find_hacks(Attempt(before={"a.py": "import os\n"}, after={"a.py": text}))
    assert "\x1b" not in evidence.quote
    assert len(evidence.quote) < 600


def test_the_same_attempt_gives_the_same_evidence() -> None:
    for case in cases("tuned")[::7]:
        assert find_hacks(case.attempt) == find_hacks(case.attempt)
