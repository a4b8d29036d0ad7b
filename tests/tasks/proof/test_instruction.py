"""Instructions tell the symptom and refuse to tell the fix."""

from patchgym.tasks.proof.instruction import failure_message, frames_of, write_instruction

TRACEBACK = """\
tests/test_a.py:12: in test_low
    assert a.clamp(-1) == 0
src/a.py:30: in clamp
    return bound(value)
src/b.py:7: in bound
    return value / zero
E   ZeroDivisionError: division by zero
"""
CHAINED = """\
a.py:1: in f
E   KeyError: 'x'

During handling of the above exception, another exception occurred:
a.py:3: in g
E   AssertionError: no <object object at 0x7f00deadbeef>
E   assert 1 == 2
E    +  where 1 = f()
"""


def is_source(path: str) -> bool:
    return path.startswith("src/")


def test_the_message_is_the_last_error_on_one_line_without_addresses() -> None:
    assert failure_message(TRACEBACK) == "ZeroDivisionError: division by zero"
    assert failure_message(CHAINED) == "AssertionError: no <object object>"
    assert failure_message("E   ValueError: " + "x" * 500).endswith("...")
    assert len(failure_message("E   ValueError: " + "x" * 500)) <= 110
    assert failure_message("") == ""


def test_the_instruction_names_tests_messages_and_the_innermost_module() -> None:
    failures = {"tests/test_a.py::TestA::test_low[1]": TRACEBACK, "tests/test_a.py::TestA::test_low[2]": TRACEBACK}
    assert write_instruction("demo", failures, is_source) == (
        "demo has a bug. This test fails:\n"
        "- tests/test_a.py::TestA::test_low: ZeroDivisionError: division by zero\n"
        "The traceback ends in src/b.py.\n"
        "Fix the source, not the tests."
    )
    assert frames_of(TRACEBACK)[-1] == ("src/b.py", "bound")


def test_many_failing_tests_are_counted_not_listed() -> None:
    failures = {f"tests/test_a.py::test_{number}": TRACEBACK for number in range(30)}
    text = write_instruction("demo", failures, is_source)
    assert len(text) < 500
    assert text.count("\n- tests/") + int(text.partition("- and ")[2].partition(" more")[0]) == 30
