"""Where tasks come from, and the proof that they are tasks.

::

    recipe.py       what a task set is made of
    packages.py     pinned packages (packages.toml, locks/) and their releases; sdists.py reads the archives
    candidates.py   planted bugs (mutation.py, operators.py) and the fixes between two releases
    draft.py        which tests fail, which are hidden (hiding.py), what the agent is told (instruction.py)
    prove.py        nothing done fails, gold passes, every time; bench.py runs it all in fresh sandboxes
    build.py        the whole way, with a funnel that accounts for every candidate
    taskset.py      a task set on disk

Only ``TaskSet`` and ``TaskSetRecipe`` are imported here; the rest needs libcst, which takes a moment to load.
"""

from patchgym.tasks.recipe import TaskSetRecipe
from patchgym.tasks.taskset import TaskSet

__all__ = ["TaskSet", "TaskSetRecipe"]
