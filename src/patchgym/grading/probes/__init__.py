"""Behaviour probes: calls to the code whose results are known, asked where no test runs.

A candidate that lives in the tests' own process can lie about their outcomes. Of a probe only the call enters its
process; what it must come to stays here, and is compared here.
"""

from patchgym.grading.probes.ask import mounted
from patchgym.grading.probes.blob import Probe, ProbeSet, load_probes, store_probes
from patchgym.grading.probes.judge import NOTHING_ASKED, Asking, Judgement, asking_of
from patchgym.grading.probes.make import ProbeMaker

__all__ = [
    "NOTHING_ASKED",
    "Asking",
    "Judgement",
    "Probe",
    "ProbeMaker",
    "ProbeSet",
    "asking_of",
    "load_probes",
    "mounted",
    "store_probes",
]
