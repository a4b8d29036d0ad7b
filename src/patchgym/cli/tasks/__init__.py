"""``patchgym tasks``: task sets. One module a command."""

import click

from patchgym.cli.lazy import LazyGroup

_COMMANDS = {
    "build": "Make tasks and prove each one in the sandbox.",
    "show": "List the tasks of a set, or show one as the agent sees it.",
}


@click.group(cls=LazyGroup, package="patchgym.cli.tasks", helps=_COMMANDS)
def command() -> None:
    """Task sets: build them, look at them, check them."""
