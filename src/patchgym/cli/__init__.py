"""The command line: ``patchgym COMMAND``. One module a command, imported when it is used.

Results go to standard output (with ``--json`` as one JSON document), progress and messages to standard error. Exit
codes: 0 done; 1 finished, but more failed than allowed; 2 usage or configuration; 3 something is missing on this
machine; 130 interrupted, after cleaning up.
"""

import os
import signal
import sys

import click

from patchgym.cli.lazy import LazyGroup
from patchgym.errors import PatchgymError

__all__ = ["main"]

_COMMANDS = {
    "loop": "Run the whole closed loop: tasks, rollouts, grading, update, evaluation.",
    "tasks": "Task sets: build, show, and what else is done with them.",
    "validate": "Prove a task set again: gold passes, nothing-done fails.",
    "rollout": "Collect trajectories of a policy on a task set.",
    "search": "Search trees of a policy: several answers at a place, in forked sandboxes.",
    "replay": "Do every recorded step again and compare: proof that a run reproduces.",
    "runs": "List the runs at hand: how they stand and what they came to.",
    "view": "Look at runs in a browser, or write one self-contained page.",
    "show": "Show a run's trajectories, or one step by step.",
    "traces": "Trajectories of other projects: import, clean, export.",
    "score": "Compute a run's rewards again, under any recipe.",
    "train": "Make one update from trajectories, go on with it, make a step again, or only count.",
    "diagnose": "Should this run go on? One checklist, to the first broken link.",
    "value": "Value models: fit, measure, score, watch for drift.",
    "spotcheck": "Label attempts of high and low reward blind; how far reward and person agree.",
    "grade": "Grade patches from a file.",
    "eval": "Measure a policy on held-out tasks: pass@1, pass@k, intervals.",
    "compare": "Set finished evaluations against each other: paired differences, power.",
    "serve": "Tasks, sandboxes and grading over HTTP, for agents in any language.",
    "doctor": "Say what this machine can do, and what to do about the rest.",
}
_INTERRUPTED = 130


@click.group(
    cls=LazyGroup, package="patchgym.cli", helps=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="patchgym", prog_name="patchgym")
def _root() -> None:
    """Reinforcement learning of coding agents on proved tasks, trajectories and rewards.

    Start with: patchgym loop
    """


def main() -> None:
    """Run the command line and exit with its code."""
    # Sandboxes and torch share the cores: threads that spin while they wait would starve both. Set before torch loads.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # A shell's background job inherits SIGINT as ignored, and SIGTERM, which asks for the same, would be lost with it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    try:
        code = _root.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = 2
    except PatchgymError as error:
        _say(error)
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        print(
            "\nInterrupted. Everything finished so far is kept; the same command goes on from there.", file=sys.stderr
        )
        code = _INTERRUPTED
    sys.exit(code if isinstance(code, int) else 0)


def _say(error: PatchgymError) -> None:
    """What failed, why, and what to do: three lines."""
    print(f"patchgym: {error.what}", file=sys.stderr)
    for part in (error.why, error.mend):
        if part:
            print(f"  {part}", file=sys.stderr)
