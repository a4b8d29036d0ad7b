"""Whose a time-out is: the patched code's, or the machine's."""

from collections.abc import Awaitable, Callable
from typing import Literal

from patchgym.records import Task
from patchgym.testrun import TestRun

_BUSY = 0.5
_IDLE = 0.25
_ROOM = 0.5


async def timeout_of(
    run: TestRun, task: Task, gold_in_time: Callable[[], Awaitable[bool]]
) -> Literal["policy", "machine"]:
    """Whose the time-out of ``run`` is. The solution is known to need at most half of the time (else it is run now, by
    ``gold_in_time``). So it is the patched code's where that had a CPU for half of the time, or wanted one for less
    than a quarter of it: it computed, or it slept. In between the machine may have been overloaded: then it is the
    machine's exactly if the solution, run now, does not come to its end in time either."""
    known = task.validation is not None and task.validation.test_seconds <= _ROOM * task.tests.timeout_s
    if known and run.ended is not None:
        wall, cpu, waited = run.ended.wall, run.ended.cpu, run.ended.waited
        if cpu >= _BUSY * wall or (waited is not None and cpu + waited < _IDLE * wall):
            return "policy"
    return "policy" if await gold_in_time() else "machine"
