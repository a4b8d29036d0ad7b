"""``patchgym value``: learned values of steps and outcomes. One module a command."""

import click

from patchgym.cli.lazy import LazyGroup

_COMMANDS = {
    "fit": "Fit a value model on the attempts of runs.",
    "report": "How good its scores are on the attempts of a run.",
    "score": "The score after each step of a run's attempts.",
    "drift": "Whether its scores of new rounds are as they were when it was fitted.",
}


@click.group(cls=LazyGroup, package="patchgym.cli.value", helps=_COMMANDS)
def command() -> None:
    """Value models: how likely an attempt is to solve its task, after each of its steps."""
