"""``patchgym traces``: trajectories in other formats. One module a command."""

import click

from patchgym.cli.lazy import LazyGroup

_COMMANDS = {
    "export": "Write a run's trajectories in another format.",
    "import": "Import logs of other agents as a run.",
    "clean": "Write a run without secrets, empty trajectories and unmarked duplicates.",
    "select": "Choose trajectories worth learning from (rejection sampling).",
    "schema": "Print the JSON Schema of a trajectory.",
}


@click.group(cls=LazyGroup, package="patchgym.cli.traces", helps=_COMMANDS)
def command() -> None:
    """Trajectories of other projects: import them, look at them, hand them on."""
