"""What a statement gives away of its solution, and the statement without it. Pure: texts in, leaks out.

::

    answer.py     the solution, taken apart into lines, tokens and names
    pointers.py   line numbers, commits, links to a change, diffs
    passages.py   code of the patch, names that only it brings in, hidden tests, test names that spell it
    edits.py      orders to edit in English; edits_zh.py those in Chinese
    scrub.py      dropping the sentences that leak
"""

from patchgym.tasks.gates.statement.answer import Answer
from patchgym.tasks.gates.statement.edits import edit_leaks
from patchgym.tasks.gates.statement.edits_zh import chinese_edit_leaks
from patchgym.tasks.gates.statement.leak import Leak, LeakKind
from patchgym.tasks.gates.statement.passages import name_leaks, passage_leaks, test_leaks
from patchgym.tasks.gates.statement.pointers import pointer_leaks
from patchgym.tasks.gates.statement.scrub import scrub

__all__ = ["Answer", "Leak", "LeakKind", "scrub", "statement_leaks"]


def statement_leaks(statement: str, answer: Answer) -> tuple[Leak, ...]:
    """Everything in a statement that gives the answer away, in order of place; of two leaks of one kind that overlap,
    the longer one.

    Raises:
        PatchError: the gold patch does not parse.
    """
    found = [
        *pointer_leaks(statement, answer),
        *passage_leaks(statement, answer),
        *name_leaks(statement, answer),
        *test_leaks(statement, answer),
        *edit_leaks(statement, answer),
        *chinese_edit_leaks(statement),
    ]
    kept: list[Leak] = []
    for leak in sorted(found, key=lambda leak: (leak.start - leak.end, leak.start, leak.kind, leak.words)):
        same = (other for other in kept if other.kind == leak.kind)
        if not any(_covers(other, leak) for other in same):
            kept.append(leak)
    return tuple(sorted(kept, key=lambda leak: (leak.start, leak.kind, leak.words)))


def _covers(kept: Leak, other: Leak) -> bool:
    if other.start == other.end:  # a test that is not in the statement
        return kept.words == other.words
    return kept.start < other.end and other.start < kept.end
