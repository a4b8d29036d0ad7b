"""``patchgym tasks``: task sets. One module a command."""

import click

from patchgym.cli.lazy import LazyGroup

_COMMANDS = {
    "build": "Make tasks and prove each one in the sandbox.",
    "show": "List the tasks of a set, or show one as the agent sees it.",
    "stats": "Sources, difficulty, scope, licences, tests and duplicates of a set.",
    "probe": "Record calls with known results, which grading asks where no test runs.",
    "audit": "Search tasks for leaks, missing proof and licences that are not allowed.",
    "split": "Split a set in training and held-out tasks; what belongs together stays together.",
    "index": "Index benchmarks, and find what of a task set stands in them.",
    "import": "Import a benchmark's rows or folders as a held-out task set.",
    "export": "Write tasks as rows or folders of another format.",
    "prompts": "Write the data set that TRL, verl or SkyRL starts from.",
}


@click.group(cls=LazyGroup, package="patchgym.cli.tasks", helps=_COMMANDS)
def command() -> None:
    """Task sets: build them, look at them, check them."""
