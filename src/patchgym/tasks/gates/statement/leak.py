"""One place where a statement tells too much."""

from typing import Literal

from patchgym.records import Record

LeakKind = Literal[
    "line_number", "commit", "reference", "diff", "fix_name", "passage", "edit", "test_name", "hidden_test"
]
"""``line_number``: a place in a file that the fix changes. ``commit``: a commit's id. ``reference``: a link to, or the
number of, a change that mends it. ``diff``: a patch. ``fix_name``: a name that only the fix brings in. ``passage``:
code that the fix adds or removes. ``edit``: an order to edit, or the edit described. ``test_name``: a test whose name
spells the answer. ``hidden_test``: the name or code of a test that the agent must not see."""


class Leak(Record):
    """``statement[start:end]`` are the ``words`` that tell, ``matches`` what they give away, ``why`` says why that is a
    leak. A name that the agent is shown beside the statement has the empty span at the statement's end."""

    kind: LeakKind
    start: int
    end: int
    words: str
    matches: str
    why: str
