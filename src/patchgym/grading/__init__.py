"""A patch's verdict, reached in a sandbox that the agent never touched, in layers (``Layer``).

The tree that is graded is the task's workspace, plus the patch restricted to what an agent may change, plus the task's
own test files, whole and pristine. Exactly the task's tests run; one that is missing, skipped or cannot be collected is
no pass. Their outcomes come over a channel that another process holds, never from what the tests print; tests whose
outcome is known run among them; and what decides is watched.

What a test process cannot show: code under test runs in that process, so that a patch which finds every hook of this,
without asking for what the watch notes, can still lie about its outcomes. That is what the calls with known results are
for, which are made without any test around.
"""

from patchgym.grading.grader import GRADER_VERSION, Grader
from patchgym.grading.layers import ALL_LAYERS, Layer
from patchgym.grading.protect import is_protected
from patchgym.grading.quality import Mutants
from patchgym.grading.tree import graded_tree

__all__ = ["ALL_LAYERS", "GRADER_VERSION", "Grader", "Layer", "Mutants", "graded_tree", "is_protected"]
