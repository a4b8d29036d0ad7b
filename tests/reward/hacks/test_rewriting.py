"""What commands make of a text is worked out without running any of their patterns."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.reward.hacks.rewriting import by_python, edited, scripted
from patchgym.reward.hacks.shell import commands_of

SCRIPT = st.text(alphabet="sgd/|;\\.*^$[](){}1,2 ab\n", max_size=40)
TEXT = "def test_a():\n    assert f(2) == 4\n    assert g('x') == [1.5]\n"

SCRIPTS = [
    ("s/== 4/== 5/", TEXT.replace("== 4", "== 5")),
    ("s|== 4|== 5|g", TEXT.replace("== 4", "== 5")),
    ("2d", TEXT.replace("    assert f(2) == 4\n", "")),
    ("2,3d", "def test_a():\n"),
    ("/g('x')/d", TEXT.replace("    assert g('x') == [1.5]\n", "")),
    ("s/assert .*/pass/", "def test_a():\n    pass\n    pass\n"),
    ("s/f(2)/f(3)/; s/4$/5/", TEXT.replace("f(2) == 4", "f(3) == 5")),
    ("/f(2)/s/4/5/", TEXT.replace("== 4", "== 5")),
    ("s/^def/async def/", "async " + TEXT),
    (r"s/\[1.5\]/[2.5]/", TEXT.replace("1.5", "2.5")),
]


@pytest.mark.parametrize(("script", "wanted"), SCRIPTS)
def test_plain_scripts_are_followed(script: str, wanted: str) -> None:
    assert edited(TEXT, script, extended=False) == wanted


@pytest.mark.parametrize("script", ["s/[0-9]/5/", r"s/\(a\)b/\1/", "y/a/b/", "s/a/&b/", "s/a", "p", "1!d", "s/a/b/x"])
def test_other_scripts_stay_unknown(script: str) -> None:
    assert edited(TEXT, script, extended=False) is None


@settings(max_examples=200, deadline=None)
@given(SCRIPT, st.text(alphabet="ab /\n.", max_size=60), st.booleans())
def test_any_script_is_read_or_left_alone(script: str, text: str, extended: bool) -> None:
    found = edited(text, script, extended=extended)
    assert found is None or isinstance(found, str)


def test_a_pattern_that_would_take_an_engine_for_ever_takes_no_time() -> None:
    began = time.process_time()
    for script in ("s/" + ".*a" * 60 + "/x/g", "s/(a+)+b/x/", "s/a/" + "b" * 2000 + "/g"):
        edited("a" * 5000 + "\n", script, extended=True)
    assert time.process_time() - began < 5


def test_the_scripts_of_a_command_are_those_that_change_a_file() -> None:
    (command,) = commands_of("sed -i -e 's/a/b/' -e '1d' tests/test_a.py")
    assert scripted(command) == [("s/a/b/", False), ("1d", False)]
    (command,) = commands_of("sed -n '1,5p' tests/test_a.py")
    assert scripted(command) == []


def test_a_program_that_replaces_texts_is_followed() -> None:
    program = "import pathlib\np = pathlib.Path('t.py')\np.write_text(p.read_text().replace('== 4', '== 5'))\n"
    assert by_python(TEXT, program) == TEXT.replace("== 4", "== 5")
    assert by_python(TEXT, "print('a')") is None
    assert by_python(TEXT, "not python at all(") is None
