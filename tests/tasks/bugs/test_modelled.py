"""Bugs and statements of a model: what is asked, what is taken, and why the rest is refused."""

import ast
import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.errors import DataError
from patchgym.policy import Policy
from patchgym.policy.openai import OpenAIPolicy
from patchgym.policy.scripted import ScriptedPolicy
from patchgym.records import Sampling
from patchgym.tasks.bugs.bug import Bug
from patchgym.tasks.bugs.modelled import (
    Asked,
    Refused,
    broken_source,
    model_bug,
    model_statement,
    parse_function,
    parse_statement,
)
from patchgym.tasks.bugs.symptoms import Symptom
from patchgym.tasks.sources.candidates import changed_functions
from tests.policy.endpoint import completion, endpoint, say

SOURCE = '''\
import functools


class Shelf:
    """Things in a row."""

    @functools.lru_cache(maxsize=1)
    def count(self, kind=None) -> int:
        """How many there are."""
        # all kinds count
        text = """
  as it is
"""
        return len(self.things) + len(text)

    def last(self):
        return self.things[-1]
'''
ASKED = Asked("shelf.py", SOURCE, "Shelf.count")
GOOD = '''\
@functools.lru_cache(maxsize=1)
def count(self, kind=None) -> int:
    """How many there are."""
    # all kinds count
    text = ""
    return len(self.things) - len(text)
'''
SYMPTOM = Symptom("value", "clamp", "clamp(12, 0, 9)", expected="9", got="0")


def fenced(text: str) -> str:
    """An answer with one block."""
    return f"Here it is:\n```python\n{text}```\n"


def refusal(answer: str, asked: Asked = ASKED) -> str:
    """Why an answer is refused."""
    with pytest.raises(Refused) as caught:
        broken_source(asked, parse_function(answer))
    return caught.value.reason


def bug_of(policy: Policy) -> Bug:
    """What a policy makes of the shelf."""
    return asyncio.run(model_bug(policy, ASKED, Sampling()))


def test_a_model_breaks_one_function() -> None:
    bug = bug_of(ScriptedPolicy([fenced(GOOD)], "script"))
    source = bug.changes["shelf.py"]
    assert changed_functions(SOURCE, source) == {"Shelf.count"}
    assert source.startswith(SOURCE[: SOURCE.index("    @functools")])
    assert source.endswith(SOURCE[SOURCE.index("\n    def last") :])
    assert "    return len(self.things) - len(text)\n" in source
    assert (bug.kind, bug.functions, bug.operators) == ("model", ("shelf.py:Shelf.count",), ("model:script",))
    assert bug.lines == {"shelf.py": tuple(range(8, 15))}
    assert bug.change == "script rewrote shelf.py:Shelf.count"
    assert (bug.facts.complexity, bug.facts.lines) == (1, 7)


def test_an_endpoint_is_asked_with_the_function_and_its_answer_taken() -> None:
    with endpoint(say(200, completion(fenced(GOOD)))) as fake:

        async def run() -> Bug:
            policy = OpenAIPolicy("coder", base_url=fake.url)
            try:
                return await model_bug(policy, ASKED, Sampling(max_tokens=99))
            finally:
                await policy.close()

        bug = asyncio.run(run())
    assert bug.operators == ("model:served",)
    asked = fake.asked[0]["messages"][-1]["content"]
    assert "@functools.lru_cache(maxsize=1)\ndef count(self, kind=None) -> int:\n" in asked
    assert "def last" not in asked


def test_an_answer_that_was_cut_is_refused() -> None:
    with endpoint(say(200, completion(fenced(GOOD), finish="length"))) as fake:

        async def run() -> None:
            policy = OpenAIPolicy("coder", base_url=fake.url)
            try:
                await model_bug(policy, ASKED, Sampling())
            finally:
                await policy.close()

        with pytest.raises(Refused) as caught:
            asyncio.run(run())
    assert caught.value.reason == "cut"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("I cannot.", "no_block"),
        (GOOD, "no_block"),
        (fenced(GOOD) + fenced(GOOD), "several_blocks"),
        (fenced("def count(self:\n"), "does_not_parse"),
        (fenced(""), "not_one_function"),
        (fenced("import os\n" + GOOD), "not_one_function"),
        (fenced(GOOD.replace("count(", "counts(")), "other_name"),
        (fenced(GOOD.replace("kind=None", "kind=0")), "other_signature"),
        (fenced(GOOD.replace("-> int", "-> str")), "other_signature"),
        (fenced(GOOD.replace("@functools.lru_cache(maxsize=1)\n", "")), "other_signature"),
        (fenced(GOOD.replace("def ", "async def ")), "other_signature"),
        (fenced(GOOD.replace("How many", "How few")), "other_docstring"),
        (fenced(GOOD.replace("- len(text)", "- len(text)  # wrong on purpose")), "tells"),
    ],
)
def test_an_answer_that_is_no_such_bug_is_refused_by_name(answer: str, reason: str) -> None:
    assert refusal(answer) == reason


def test_a_function_that_stays_the_same_program_is_no_bug() -> None:
    asked = Asked("a.py", "def f(a):\n    return a+1\n", "f")
    assert refusal(fenced("def f(a):\n    return a + 1\n"), asked) == "same_program"


def test_an_indented_block_and_windows_lines_are_taken() -> None:
    source = "class K:\r\n    def f(self):\r\n        return 1\r\n"
    broken = broken_source(
        Asked("a.py", source, "K.f"), parse_function(fenced("    def f(self):\r\n        return 2\r\n"))
    )
    assert broken == source.replace("1", "2")


def test_a_function_that_is_not_there_is_an_error() -> None:
    with pytest.raises(DataError, match="no function gone"):
        broken_source(Asked("a.py", "", "gone"), GOOD)


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(["```", "```python", "def count(self):", "    return 1", "", "# x", "'''", "\\", "\t\0"]))
)
def test_any_answer_is_taken_or_refused_by_name(lines: list[str]) -> None:
    asked = Asked("a.py", "def count(self):\n    return 2\n", "count")
    with contextlib.suppress(Refused):
        ast.parse(broken_source(asked, parse_function("\n".join(lines))))


def test_a_model_writes_a_statement_from_the_symptoms_alone() -> None:
    with endpoint(say(200, completion("  clamp gives the wrong end.\n"))) as fake:

        async def run() -> str:
            policy = OpenAIPolicy("coder", base_url=fake.url)
            try:
                return await model_statement(policy, "calc", [SYMPTOM], Sampling(), secrets=["return low_secret"])
            finally:
                await policy.close()

        assert asyncio.run(run()) == "clamp gives the wrong end."
    asked = fake.asked[0]["messages"][-1]["content"]
    assert "clamp(12, 0, 9): got 0, expected 9" in asked
    assert "low_secret" not in asked


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (" \n", "empty"),
        ("x" * 1501, "too_long"),
        ("It is wrong:\n```\nreturn low\n```", "shows_code"),
        ("See line 12.", "names_place"),
        ("See calc.py:12 there.", "names_place"),
        ("It does return  low\nif value is small.", "leaks"),
    ],
)
def test_a_statement_that_tells_too_much_is_refused_by_name(answer: str, reason: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_statement(answer, ["    return low if value", "ok"])
    assert caught.value.reason == reason


def test_short_secrets_do_not_count() -> None:
    assert parse_statement("It is ok.", ["ok"]) == "It is ok."
