"""Where tasks come from, and the proof that they are tasks.

::

    recipe.py    what a task set is made of
    sources/     code bases at one revision, and candidates: something wrong in them and the patch that mends it
    bugs/        planting bugs: where, which, how hard; writer.py has a model write them
    proof/       which tests fail, which are hidden, what is told; nothing done fails, gold passes, every time
    gates/       what spoils a task: leaks, readable solutions, vague statements, licences
    overlap/     duplicates, benchmarks, splits
    formats/     benchmarks' rows and folders, in and out
    settle.py    one candidate to its end; ledger.py keeps what it came to, funnel.py counts
    build.py     the whole way, from every source; cleaning.py takes out what does not go together
    taskset.py   a task set on disk

Only ``TaskSet`` and ``TaskSetRecipe`` are imported here; the rest needs libcst, which takes a moment to load.
"""

from patchgym.tasks.recipe import TaskSetRecipe
from patchgym.tasks.taskset import TaskSet

__all__ = ["TaskSet", "TaskSetRecipe"]
