"""The first finding is the planted fault, and no clean run raises an alarm."""

import importlib.util
from pathlib import Path

import pytest

from patchgym.diagnose import diagnose, read_facts
from patchgym.records import Checklist
from patchgym.store import RunDirectory
from tests.diagnose.planted.clean import CLEAN
from tests.diagnose.planted.faults import FAULTS, Bases
from tests.diagnose.planted.made import EACH_GRADED, Part, make_run
from tests.diagnose.planted.unseen import UNSEEN

pytestmark = [
    pytest.mark.slow,
    pytest.mark.train,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "peft")),
        reason="needs the train extra: pip install 'patchgym[train]'",
    ),
]


@pytest.fixture(scope="session")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Bases:
    """A sound run and a tiny model, which others are made from."""
    from tests.train.tiny import save_tiny_model

    place = tmp_path_factory.mktemp("bases")
    sound = make_run(place / "rollout", [Part(samples=4, settings=EACH_GRADED)])
    return Bases(sound, save_tiny_model(place / "tiny"), place / "cache")


def looked_at(path: Path) -> Checklist:
    return diagnose(read_facts(RunDirectory.read(path)))


@pytest.mark.parametrize("name", [*FAULTS, *UNSEEN])
def test_the_first_finding_is_the_planted_fault(name: str, bases: Bases, tmp_path: Path) -> None:
    fault = {**FAULTS, **UNSEEN}[name]
    first = looked_at(fault.make(tmp_path / name, bases)).first
    assert first is not None
    assert first.check == fault.check, first.evidence
    assert first.action


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_run_raises_no_alarm(name: str, bases: Bases, tmp_path: Path) -> None:
    first = looked_at(CLEAN[name](tmp_path / name, bases)).first
    assert first is None, first.evidence
