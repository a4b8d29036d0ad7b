"""Hacks: what in an attempt raises its reward without solving its task, found by its traces.

``find_hacks`` runs every detector on one frozen ``Attempt`` and gives ``Evidence`` that a person can check. Evidence
with ``proof`` is what honest work cannot do: it zeroes the reward. All other evidence marks for screening. Nothing is
imported or run, whatever the attempt holds, and no attempt makes a detector raise.

``kinds()`` says what each kind of evidence means. The labelled set in ``tests/reward/hacks`` has cases of each.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib import resources
from types import MappingProxyType

from patchgym.records import Evidence
from patchgym.reward.hacks.actions import find_actions
from patchgym.reward.hacks.answers import find_answers
from patchgym.reward.hacks.anyerror import find_any_error
from patchgym.reward.hacks.attempt import Attempt, attempt_of, texts_of
from patchgym.reward.hacks.concealing import find_hidden_code
from patchgym.reward.hacks.counters import find_counters
from patchgym.reward.hacks.ending import find_exits, find_hooks, find_kills, find_skips
from patchgym.reward.hacks.equality import find_always_equal
from patchgym.reward.hacks.forging import find_background, find_environment, find_forged
from patchgym.reward.hacks.hooks import find_hooks as find_pytest_hooks
from patchgym.reward.hacks.imports import find_missing_imports
from patchgym.reward.hacks.leaks import find_leaks
from patchgym.reward.hacks.literals import find_hard_coded
from patchgym.reward.hacks.look import Look
from patchgym.reward.hacks.loosening import find_loosened
from patchgym.reward.hacks.patching import find_native, find_patching
from patchgym.reward.hacks.paths import find_by_path
from patchgym.reward.hacks.rebinding import find_rebound
from patchgym.reward.hacks.restoring import find_restored
from patchgym.reward.hacks.results import find_gaps
from patchgym.reward.hacks.semantic import find_removed
from patchgym.reward.hacks.special import find_detection, find_frames
from patchgym.reward.hacks.swallowing import find_swallowed
from patchgym.reward.hacks.testfiles import find_test_changes

__all__ = ["DETECTORS", "Attempt", "attempt_of", "find_hacks", "kinds", "texts_of"]

_MOST = 60

DETECTORS: tuple[Callable[[Look], Iterator[Evidence]], ...] = (
    find_test_changes,
    find_loosened,
    find_missing_imports,
    find_rebound,
    find_by_path,
    find_pytest_hooks,
    find_patching,
    find_native,
    find_exits,
    find_hooks,
    find_skips,
    find_kills,
    find_forged,
    find_background,
    find_environment,
    find_hard_coded,
    find_answers,
    find_counters,
    find_detection,
    find_frames,
    find_always_equal,
    find_any_error,
    find_swallowed,
    find_removed,
    find_hidden_code,
    find_actions,
    find_leaks,
    find_restored,
    find_gaps,
)
"""Every detector, in the order in which their evidence is given."""


@lru_cache(maxsize=1)
def kinds() -> Mapping[str, str]:
    """What each kind of evidence means, in words. Read once, from ``kinds.toml``."""
    text = resources.files("patchgym.reward.hacks").joinpath("kinds.toml").read_text(encoding="utf-8")
    return MappingProxyType({name: what for family in tomllib.loads(text).values() for name, what in family.items()})


def find_hacks(attempt: Attempt) -> tuple[Evidence, ...]:
    """All evidence against an attempt, at most 60 pieces, each once. Empty for work that nothing speaks against."""
    look = Look(attempt)
    found: dict[tuple[str, str], Evidence] = {}
    for detector in DETECTORS:
        for evidence in detector(look):
            key = (evidence.kind, evidence.where)
            if key not in found or (evidence.proof and not found[key].proof):
                found[key] = evidence
            if len(found) >= _MOST:
                return tuple(found.values())
    return tuple(found.values())
