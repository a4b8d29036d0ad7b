"""What static analysis says of a code base."""

from patchgym.tasks.bugs.survey import functions_of, survey

SOURCE = '''\
class Box:
    """A box."""

    def __init__(self, items):
        self._items = list(items)

    @property
    def first(self):
        return self._items[0]

    def _weigh(self, item):
        return item if item else 0

    def weight(self):
        """Sum of the items."""
        total = 0
        for item in self._items:
            if item is not None and item > 0:
                while item:
                    total += self._weigh(item)
                    break
            elif item:
                total -= 1
        return total


def pack(items):
    def keep(item):
        return item

    return Box([keep(item) for item in items])


def lonely():
    return 1
'''
TESTS = """\
from box import Box, pack


def helper(items):
    return pack(items)


def test_pack():
    assert helper([1]).weight() == 1


class TestBox:
    def test_first(self):
        assert Box([1]).first == 1
"""
PATH = "box.py"
SURVEY = survey({PATH: SOURCE}, {"test_box.py": TESTS})


def key(name: str) -> str:
    """The key of a function of the box."""
    return f"{PATH}:{name}"


def test_functions_are_found_with_their_qualified_names() -> None:
    names = {facts.name for facts in functions_of(PATH, SOURCE)}
    assert names == {"Box.__init__", "Box.first", "Box._weigh", "Box.weight", "pack", "pack.keep", "lonely"}


def test_branches_lines_and_nesting_are_counted() -> None:
    weight = SURVEY.functions[key("Box.weight")]
    assert weight.complexity == 6  # for, if, and, while, elif
    assert weight.nesting == 3  # for, if, while; the elif lies no deeper
    assert weight.lines == range(14, 25)
    assert weight.docstring == "Sum of the items."
    assert SURVEY.functions[key("Box._weigh")].complexity == 2


def test_decorators_belong_to_a_function_but_not_to_its_lines() -> None:
    first = SURVEY.functions[key("Box.first")]
    assert (first.first_line, first.lines.start) == (7, 8)


def test_what_users_see_is_public() -> None:
    public = {facts.name for facts in SURVEY.functions.values() if facts.public}
    assert public == {"Box.__init__", "Box.first", "Box.weight", "pack", "lonely"}


def test_callers_are_found_by_name() -> None:
    assert SURVEY.callers(key("Box._weigh")) == {key("Box.weight")}
    assert SURVEY.callers(key("Box.__init__")) == {key("pack")}  # who mentions a class makes one
    assert SURVEY.callers(key("pack.keep")) == {key("pack")}
    assert SURVEY.related(key("pack"), key("Box.__init__"))
    assert not SURVEY.related(key("pack"), key("lonely"))


def test_a_function_is_shown_by_the_public_name_that_leads_to_it() -> None:
    shown = {facts.name: SURVEY.shown(facts.key) for facts in SURVEY.functions.values()}
    assert shown["Box.weight"] == shown["Box._weigh"] == "Box.weight"
    assert shown["Box.__init__"] == "Box"
    assert shown["pack.keep"] == "pack"
    assert survey({PATH: "def _alone():\n    return 1\n"}, {}).shown(key("_alone")) == ""


def test_a_package_goes_by_the_names_of_its_functions_classes_and_modules() -> None:
    assert SURVEY.names >= {"Box", "weight", "pack", "box"}
    assert survey({"a/b/__init__.py": "def f(): pass\n"}, {}).names == {"a", "b", "f"}


def test_the_depth_below_the_tests_passes_over_their_helpers() -> None:
    depths = {facts.name: SURVEY.depth(facts.key) for facts in SURVEY.functions.values()}
    assert depths == {
        "pack": 1,
        "pack.keep": 2,
        "Box.__init__": 1,
        "Box.first": 1,
        "Box.weight": 1,
        "Box._weigh": 2,
        "lonely": None,
    }


def test_the_tests_near_a_function_mention_it_or_a_caller() -> None:
    assert SURVEY.tests_near(key("Box._weigh")) == {"test_box.py:test_pack"}
    assert SURVEY.tests_near(key("Box.first")) == {"test_box.py:TestBox.test_first"}
    assert SURVEY.tests_near(key("lonely")) == frozenset()


def test_what_is_no_python_has_no_functions() -> None:
    assert functions_of(PATH, "def {{ name }}(): pass") == []
    assert functions_of(PATH, "x = '\0'") == []
