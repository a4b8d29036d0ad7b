"""Where tasks come from, and the proof that they are tasks.

::

    recipe.py    what a task set is made of
    sources/     code bases at one revision, and candidates: something wrong in them and the patch that mends it
    bugs/        planting a bug in a source file
    proof/       which tests fail, which are hidden, what is told; nothing done fails, gold passes, every time
    build.py     the whole way, with a funnel that accounts for every candidate
    taskset.py   a task set on disk

Only ``TaskSet`` and ``TaskSetRecipe`` are imported here; the rest needs libcst, which takes a moment to load.
"""

from patchgym.tasks.recipe import TaskSetRecipe
from patchgym.tasks.taskset import TaskSet

__all__ = ["TaskSet", "TaskSetRecipe"]
