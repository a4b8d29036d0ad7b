"""Where work is done: here, or on the nodes of a Ray cluster. The same records come out.

::

    work.py      what a piece of work is: records in, a record and objects out
    local.py     here, in this process
    wire.py      records and errors as bytes
    node.py      what a node keeps: objects, environments, one lock each
    worker.py    the far side: one worker process (knows nothing of Ray)
    crew.py      the near side: workers, their slots, the work of those that were lost
    cluster.py   the only module that imports Ray

Ray is imported when a cluster is asked for, and nothing of it before.
"""

from patchgym.executors.crew import CrewSettings
from patchgym.executors.local import LocalExecutor
from patchgym.executors.work import Executor, Need, Place, WorkSpec

__all__ = ["CrewSettings", "Executor", "LocalExecutor", "Need", "Place", "WorkSpec"]
