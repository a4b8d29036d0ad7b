"""``patchgym traces schema``: what a trajectory is, for programs."""

import click

from patchgym.cli.console import show_json


@click.command()
def command() -> None:
    """Print the JSON Schema of a line of trajectories.jsonl."""
    from patchgym.records import Trajectory

    show_json(Trajectory.model_json_schema(mode="serialization"))
