"""What a detector is given: one attempt at a task, whole and frozen."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from patchgym.content import ObjectStore, written_out
from patchgym.content.patches import patched_file
from patchgym.content.unified import FilePatch, parse_patch
from patchgym.errors import PatchError
from patchgym.records import Step, Task, TestReport

_HUGE = 2_000_000
Texts = Mapping[str, str | None]


@dataclass(frozen=True)
class Attempt:
    """A patch in its surroundings. Only ``before`` and ``after`` are needed to look at code, only ``steps`` to look at
    actions, only ``report`` to look at results: what is not known stays empty, and nothing is concluded from it.

    All texts are hostile data. They are parsed, never run.
    """

    before: Texts = field(default_factory=dict)
    """The text of every touched path in the workspace that the agent was given; None where there was no such file."""
    after: Texts = field(default_factory=dict)
    """The same with the patch applied; None where the file is gone."""
    patch: str = ""
    """The patch itself. It is read only for a path that neither mapping has, and for modes."""
    test_files: frozenset[str] = frozenset()
    """Paths of the task's test files, those that the agent never sees among them."""
    tests: Mapping[str, str] = field(default_factory=dict)
    """The texts of the visible test files, as the agent found them."""
    paths: frozenset[str] = frozenset()
    """Every path of the workspace that the agent was given; empty where they are not known."""
    functions: tuple[str, ...] = ()
    """``path:qualified name`` of what the solution touches, where that is known."""
    instruction: str = ""
    """What the agent was asked for. What it names is no secret shared with the tests."""
    repo: str = ""
    """The name of the package or repository that is worked on."""
    steps: tuple[Step, ...] = ()
    """What the agent did."""
    report: TestReport | None = None
    """What grading said; None where it was not graded."""


def attempt_of(
    task: Task, objects: ObjectStore, patch: str, steps: Sequence[Step] = (), report: TestReport | None = None
) -> Attempt:
    """The attempt at ``task`` that ended with ``patch``. A patch that does not parse gives one without texts; the part
    of a patch that does not apply is left out: grading calls either invalid.

    Raises:
        DataError: the task's workspace or tests are not in the store.
    """
    entries = objects.entries(task.workspace)

    def read(path: str) -> bytes | None:
        entry = entries.get(path)
        return objects.get(entry.id) if entry is not None else None

    before, after = ({written_out(path): text for path, text in one.items()} for one in texts_of(patch, read))
    visible = {path: _text(objects.get(blob)) or "" for path, blob in task.tests.visible_files.items()}
    return Attempt(
        before=before,
        after=after,
        patch=patch,
        test_files=frozenset((*task.tests.visible_files, *task.tests.hidden_files)),
        tests=visible,
        paths=frozenset(map(written_out, entries)),
        functions=task.functions,
        instruction=task.instruction,
        repo=task.source.repo,
        steps=tuple(steps),
        report=report,
    )


def texts_of(patch: str, read: Callable[[str], bytes | None]) -> tuple[Texts, Texts]:
    """Every touched path with its text before and after ``patch``. ``read`` gives a file's bytes in the workspace, None
    where there is none. Of a file that it does not know, though the patch changes it, the two sides of the hunks stand
    for the texts."""
    try:
        parts = parse_patch(patch)
    except PatchError:
        return {}, {}
    before: dict[str, str | None] = {}
    after: dict[str, str | None] = {}
    for part in parts:
        old = read(part.source) if part.source is not None else None
        sides = _sides(part, old)
        if sides is None:
            continue
        if part.source is not None:
            before.setdefault(part.source, sides[0])
            if part.source != part.target and not part.copied:
                after[part.source] = None
        if part.target is not None:
            before.setdefault(part.target, None)
            after[part.target] = sides[1]
    return before, after


def _sides(part: FilePatch, old: bytes | None) -> tuple[str | None, str | None] | None:
    if old is None and part.source is not None:
        old = b"".join(line for hunk in part.hunks for line in hunk.old)
        new = b"".join(line for hunk in part.hunks for line in hunk.new) if part.literal is None else part.literal
        return _text(old), _text(new)
    try:
        return _text(old), _text(patched_file(part, old or b""))
    except PatchError:
        return None


def _text(data: bytes | None) -> str | None:
    """Text with line ends made alike; a file that is too large to look at keeps its head."""
    if data is None:
        return None
    return data[:_HUGE].decode("utf-8-sig", "backslashreplace").replace("\r\n", "\n").replace("\r", "\n")
