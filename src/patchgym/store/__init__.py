"""A run on disk.

::

    RUN/
      run.json              what the run is made of: resolved configuration, versions, task hashes, seed
      tasks.jsonl           the tasks that it works on, whole
      trajectories.jsonl    one whole trajectory a line, appended and synced when it is final
      trees.jsonl           one whole search tree a line, likewise; its paths are trajectories
      journal/ID.jsonl      the steps of a trajectory in the making, synced as they happen; gone once it is final
      journal/ID.interrupted  the same of one that a killed run left; its work is done again under the same id
      objects/              a bare git store: workspace states and long outputs
      metrics.jsonl         one JSON object for each thing measured
      gates.jsonl           one checklist a line, at each place where the run could have stopped
      checkpoints/VERSION/  published policies
      report.json           what the command concluded
      lock                  held by the one process that writes

A run that is killed at any instant goes on where it was: what is final is kept, what was in the making is made again.
"""

from patchgym.store.looking import RunFiles
from patchgym.store.run import Journal, RunDirectory

__all__ = ["Journal", "RunDirectory", "RunFiles"]
