"""Four small bugs with their fixes and tests, and the statements that were planted for each."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

from patchgym.content import Entry, ObjectStore, diff_trees
from patchgym.tasks.gates.statement import Answer
from tests.workshop import BUGGY, FIXED, VISIBLE, WHOLE

_PAGES = '''\
def pages(total, size):
    """How many pages hold ``total`` rows."""
    if size < 1:
        raise ValueError("size must be positive")
    return total // size
'''
_TITLES = '''\
def title_of(name, cache={}):
    """The name as a title."""
    try:
        return cache[name]
    except KeyError:
        pass
    cache[name] = name.strip().title()
    return cache[name]
'''
_TITLES_FIXED = '''\
import unicodedata


def _normalised_key(name):
    return unicodedata.normalize("NFC", name).casefold()


def title_of(name, cache={}):
    """The name as a title."""
    key = _normalised_key(name)
    try:
        return cache[key]
    except KeyError:
        pass
    cache[key] = name.strip().title()
    return cache[key]
'''
_SPAN = '''\
def covers(start, stop, step):
    """Whether the span holds its own start."""
    if start < stop and step:
        return True
    return False
'''


@dataclass(frozen=True)
class Case:
    """A file before and after its fix, and the visible and whole test file."""

    path: str
    before: str
    after: str
    visible: str
    whole: str
    hidden: tuple[str, ...] = ()


CASES: Mapping[str, Case] = {
    "clamp": Case("calc.py", BUGGY, FIXED, VISIBLE, WHOLE, ("tests/test_calc.py::test_far_above",)),
    "pages": Case(
        "pages.py",
        _PAGES,
        _PAGES.replace("total // size", "-(-total // size)"),
        "from pages import pages\n\n\ndef test_rest():\n    assert pages(7, 3) == 3\n",
        "from pages import pages\n\n\ndef test_rest():\n    assert pages(7, 3) == 3\n",
    ),
    "titles": Case(
        "titles.py",
        _TITLES,
        _TITLES_FIXED,
        "from titles import title_of\n\n\ndef test_case():\n    assert title_of('Anna') == title_of('ANNA')\n",
        "from titles import title_of\n\n\ndef test_case():\n    assert title_of('Anna') == title_of('ANNA')\n",
    ),
    "span": Case(
        "span.py",
        _SPAN,
        _SPAN.replace("start < stop and step", "start <= stop or step"),
        "from span import covers\n\n\ndef test_touching():\n    assert covers(3, 3, 1) is True\n",
        "from span import covers\n\n\ndef test_touching():\n    assert covers(3, 3, 1) is True\n",
    ),
}


@lru_cache(maxsize=8)
def answer_of(name: str) -> Answer:
    """The answer of one case."""
    case = CASES[name]
    tests = f"tests/test_{case.path}"
    with TemporaryDirectory() as folder:
        objects = ObjectStore(Path(folder))
        old, new = (
            objects.write_tree({case.path: Entry(0o100644, objects.put(text.encode()))})
            for text in (case.before, case.after)
        )
        patch = diff_trees(objects, old, new)
    return Answer(
        gold_patch=patch,
        workspace={case.path: case.before, tests: case.visible},
        hidden_tests=case.hidden,
        hidden_sources={tests: case.whole},
    )


def planted(side: str) -> list[tuple[str, str, str]]:
    """Case, kind (empty for clean ones) and text of every planted statement of ``leaking`` or ``clean``."""
    data = tomllib.loads(resources.files("tests.tasks.gates").joinpath("statements.toml").read_text(encoding="utf-8"))
    return [(group["case"], group.get("kind", ""), text) for group in data[side] for text in group["texts"]]
