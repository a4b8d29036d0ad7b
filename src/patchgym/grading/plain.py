"""How a naive grader looks: pytest in the agent's tree, and its exit status. For comparison only."""

from collections.abc import Sequence

from patchgym.records import Outcome
from patchgym.sandbox import Ending, Sandbox
from patchgym.testrun import TestRun, function_of

_LOG_BYTES = 8000


async def run_plainly(sandbox: Sandbox, ids: Sequence[str], *, timeout_s: float) -> TestRun:
    """Run pytest on the files of ``ids``. Exit status 0 means that every test passed; any other says nothing of single
    tests, which are ``missing`` then.

    Raises:
        SandboxError: the sandbox was lost.
    """
    files = sorted({function_of(test)[0] for test in ids})
    done = await sandbox.exec(["python", "-m", "pytest", "-q", "--tb=short", *files], timeout_s=timeout_s)
    silent = Outcome.TIMED_OUT if done.timed_out else Outcome.MISSING
    outcome = Outcome.PASSED if done.ending is Ending.EXITED and done.exit_code == 0 else silent
    streams = (done.stdout[-_LOG_BYTES:], done.stderr[-_LOG_BYTES:])
    return TestRun(
        outcomes=dict.fromkeys(ids, outcome),
        complete=done.ending is Ending.EXITED,
        process=done,
        log="\n".join(stream.decode("utf-8", "backslashreplace") for stream in streams if stream),
    )
