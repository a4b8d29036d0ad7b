"""Should this run go on? Evidence from the run directory, in a fixed order, and a verdict in plain words."""

from patchgym.diagnose.judge import Finding, HeldOut, Judgement, Level, UpdateFacts, judge

__all__ = ["Finding", "HeldOut", "Judgement", "Level", "UpdateFacts", "judge"]
