"""Groups of commands, each imported only when it is asked for: ``--help`` stays quick."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """``commands`` maps a command's name to its one-line help. The command ``name`` is ``command`` of the module
    ``PACKAGE.name`` (with an underscore behind a Python keyword)."""

    def __init__(self, *, package: str, helps: Mapping[str, str], **settings: Any) -> None:
        super().__init__(**settings)
        self._package, self._helps = package, helps

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order in which they were given."""
        return list(self._helps)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in self._helps:
            return None
        module = f"{cmd_name}_" if cmd_name == "import" else cmd_name
        command = import_module(f"{self._package}.{module}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._helps.items()))
