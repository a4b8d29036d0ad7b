"""A patch's verdict, reached in a sandbox that the agent never touched.

The tree that is graded is the task's workspace, plus the patch restricted to what an agent may change, plus the task's
own test files, whole and pristine. Exactly the task's tests run; one that is missing, skipped or cannot be collected is
no pass. Their outcomes come through the runner's pipe, never from what the tests print.

What this does not stop yet: code under test runs in the same process as the tests, so that a patch which inspects its
caller, or which writes to the runner's pipe with care, can still lie about its outcomes.
"""

from patchgym.grading.grader import GRADER_VERSION, Grader, graded_tree
from patchgym.grading.protect import is_protected

__all__ = ["GRADER_VERSION", "Grader", "graded_tree", "is_protected"]
