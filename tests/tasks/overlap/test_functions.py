"""The functions that a change touches, and their texts without docstrings."""

from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.tasks.overlap.changes import hunks_of
from patchgym.tasks.overlap.functions import (
    OUTSIDE,
    docstrings,
    functions_in,
    touched_functions,
    without_docstrings,
)
from tests.tasks.overlap.made import CHUNKS, MERGE, unified

CLASS = '''\
LIMIT = 3


class Box:
    """Holds."""

    @property
    def full(self):
        """Whether it is."""
        "a comment in a string"
        return self.size >= LIMIT

    def outer(self):
        def inner(value):
            return value + 1

        return inner(self.size)
'''


def touched(before: str, after: str, path: str = "lib.py") -> list[str]:
    """The names of what a change touches."""
    return [
        function.name for function in touched_functions(path, before, after, hunks_of(unified(before, after, path)))
    ]


def test_a_method_is_named_with_its_class_and_keeps_its_decorator() -> None:
    found = functions_in(CLASS)
    assert found is not None
    assert list(found) == ["Box.full", "Box.outer", "Box.outer.inner"]
    assert found["Box.full"].startswith("    @property\n    def full")


def test_of_nested_functions_the_innermost_is_touched() -> None:
    assert touched(CLASS, CLASS.replace("value + 1", "value + 2")) == ["Box.outer.inner"]


def test_a_function_that_only_moves_or_gets_a_comment_is_not_touched() -> None:
    assert touched(MERGE + CHUNKS, CHUNKS.replace("    if size", "    # Check.\n    if size") + MERGE) == []


def test_a_change_of_a_docstring_is_none() -> None:
    assert touched(CHUNKS, CHUNKS.replace("of one size", "of equal size")) == []


def test_what_changes_outside_of_functions_is_told_too() -> None:
    assert touched(CLASS, CLASS.replace("LIMIT = 3", "LIMIT = 4")) == [OUTSIDE]


def test_new_and_removed_functions_have_one_side() -> None:
    added = touched_functions("lib.py", MERGE, MERGE + CHUNKS, [])
    assert [(function.name, function.before) for function in added] == [("chunks", "")]
    gone = touched_functions("lib.py", MERGE + CHUNKS, MERGE, [])
    assert [(function.name, function.after) for function in gone] == [("chunks", "")]


def test_where_a_file_is_no_python_its_hunks_stand_for_functions() -> None:
    before = "function add(a, b) {\n  return a - b\n}\n"
    assert touched(before, before.replace("-", "+"), "lib.js") == ["<>"]
    assert touched("print 'a'\n", "print 'b'\n") == ["<>"]


def test_docstrings_and_strings_as_comments_are_left_out_at_any_indentation() -> None:
    method = (functions_in(CLASS) or {})["Box.full"]
    assert "Whether" not in without_docstrings(method)
    assert "a comment" not in without_docstrings(method)
    assert "return self.size >= LIMIT" in without_docstrings(method)
    assert docstrings(method)[0] == "Whether it is."


@settings(deadline=None)
@given(st.text())
def test_any_text_is_borne(text: str) -> None:
    assert touched_functions("a.py", text, text, []) == []
    assert isinstance(without_docstrings(text), str)
