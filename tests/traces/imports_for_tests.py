"""Logs imported into a run of their own, and a made-up conversation that every format can tell."""

import itertools
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from patchgym.content import ObjectStore
from patchgym.errors import DataError
from patchgym.records import Step, Trajectory
from patchgym.store import RunDirectory
from patchgym.traces.formats import READERS
from patchgym.traces.importing import FileImport, import_logs
from patchgym.traces.intake import Intake
from tests.records_for_tests import make_manifest


def imported(*paths: Path, format_name: str = "auto") -> tuple[list[Trajectory], list[FileImport]]:
    """What a run holds after an import, read back from disk, and what became of each file."""
    with tempfile.TemporaryDirectory() as scratch:
        run = RunDirectory.open_for_writing(Path(scratch) / "run", make_manifest())
        done = import_logs(paths, format_name, run)
        run.close()
        back = RunDirectory.read(Path(scratch) / "run")
        assert not back.problems
        return list(back.trajectories), done


def read_only(path: Path, format_name: str) -> tuple[list[Trajectory], Counter[str]]:
    """What a format's reader makes of a file, each trajectory written as a line and read back, and what is broken."""
    with tempfile.TemporaryDirectory() as scratch:
        intake = Intake(ObjectStore(Path(scratch)))
        try:
            found = [Trajectory.from_line(one.to_line()) for one in READERS[format_name].read(path, intake)]
        except DataError:
            return [], Counter(unreadable=1)
        return found, intake.broken


def recognised(path: Path) -> list[str]:
    """The formats that take a file for their own."""
    head = path.read_bytes()[: 1 << 16]
    return [name for name, reader in READERS.items() if reader.recognises(path, head)]


def one_of(path: Path, format_name: str = "auto") -> Trajectory:
    """The one trajectory of a log of which nothing is broken."""
    (trajectory,), (done,) = imported(path, format_name=format_name)
    assert done.broken == {}
    return trajectory


def write_lines(path: Path, lines: Sequence[object]) -> Path:
    """A file of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def write_json(path: Path, document: object) -> Path:
    """A file that is one JSON document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


@dataclass(frozen=True)
class Call:
    """A call, and what came of it."""

    tool: str
    arguments: dict[str, Any]
    shown: str


@dataclass(frozen=True)
class Turn:
    """What a user said, and what the model answered."""

    asked: str
    text: str
    thought: str
    calls: tuple[Call, ...]


_TEXTS = st.text(min_size=1, max_size=40).filter(lambda text: text == text.strip())
_VALUES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=20) | st.lists(st.integers(0, 9))
_CALLS = st.builds(
    Call,
    tool=st.sampled_from(["bash", "read_file", "unheard_of"]),
    arguments=st.dictionaries(st.text(max_size=8), _VALUES, max_size=3),
    shown=_TEXTS,
)


def conversations(most_calls: int = 3) -> st.SearchStrategy[list[Turn]]:
    """Arbitrary conversations."""
    calls = st.lists(_CALLS, max_size=most_calls).map(tuple)
    return st.lists(st.builds(Turn, asked=_TEXTS, text=_TEXTS, thought=_TEXTS, calls=calls), min_size=1, max_size=4)


def told(trajectory: Trajectory) -> list[object]:
    """A trajectory's conversation, flat: for what was asked, answered, thought, done, and shown."""
    flat: list[object] = []
    for step in trajectory.steps:
        flat += [("asked", one.content) for one in step.prompt if one.role == "user"]
        if not step.continues:
            flat.append(("answered", step.message.content, step.message.reasoning))
        if step.action is not None:
            flat.append(("did", step.action.tool, step.action.arguments, _shown(step)))
    return flat


def _shown(step: Step) -> str | None:
    return step.observation.shown if step.observation is not None else None


def flat(turns: Sequence[Turn], *, thoughts: bool = True) -> list[object]:
    """The same of a made-up conversation."""
    return list(
        itertools.chain.from_iterable(
            [
                ("asked", turn.asked),
                ("answered", turn.text, turn.thought if thoughts else None),
                *(("did", call.tool, call.arguments, call.shown) for call in turn.calls),
            ]
            for turn in turns
        )
    )
