"""``--executor`` of the commands whose work can be done on a cluster."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click
from pydantic import JsonValue

from patchgym.cli.console import say
from patchgym.config import assigned
from patchgym.errors import UsageError
from patchgym.executors import CrewSettings
from patchgym.store import RunDirectory

if TYPE_CHECKING:
    from patchgym.executors.cluster import RayCluster

LOCAL = "local"
EVENTS = "executor"
"""The kind of the metrics that a run keeps of its workers."""
_CLOCKS_APART_S = 1.0
_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Afar:
    """Where else than here: the address of a cluster, and what a worker takes there."""

    address: str
    settings: CrewSettings


def executor_options(command: _F) -> _F:
    """``--executor`` and ``--worker``; ``asked_afar`` says what was asked for."""

    def remember(context: click.Context, parameter: click.Parameter, value: object) -> None:
        context.meta[f"patchgym.{parameter.name}"] = value

    command = click.option(
        "--worker",
        multiple=True,
        metavar="KEY=VALUE",
        expose_value=False,
        callback=remember,
        help="With --executor: what a worker takes of its node. Keys: cpus, memory_gb, gpus, slots, patience.",
    )(command)
    return click.option(
        "--executor",
        metavar="WHERE",
        default=LOCAL,
        show_default=True,
        expose_value=False,
        callback=remember,
        help="Where the work is done: local, ray (the cluster of this machine), or ray://HOST:PORT.",
    )(command)


def asked_afar() -> Afar | None:
    """What the command line asks for; None for the work to be done here.

    Raises:
        UsageError, ConfigError: ``--worker`` is wrong, or there is no cluster for it.
    """
    context = click.get_current_context(silent=True)
    asked = context.meta if context is not None else {}
    address, given = str(asked.get("patchgym.executor", LOCAL)), asked.get("patchgym.worker", ())
    if address == LOCAL:
        if given:
            raise UsageError("--worker is for workers on a cluster", mend="Add --executor ray, or leave it out.")
        return None
    return Afar(address, assigned(CrewSettings, given, "--worker"))


def refuse_afar(what: str) -> None:
    """For what is done here alone.

    Raises:
        UsageError: the command line asks for it elsewhere.
    """
    if asked_afar() is not None:
        raise UsageError(f"{what} is done on this machine alone", mend="Leave --executor out.")


def given_concurrency(asked: int | None) -> int | None:
    """The bound on what is in hand at once, where the command line gave one; on a cluster the default counts for
    nothing."""
    context = click.get_current_context(silent=True)
    source = context.get_parameter_source("concurrency") if context is not None else None
    return asked if source is click.core.ParameterSource.COMMANDLINE else None


@contextmanager
def joined(afar: Afar) -> Iterator["RayCluster"]:
    """The cluster, joined until the block ends.

    Raises:
        UsageError, PrerequisiteError: as ``RayCluster.connect``.
    """
    from patchgym.executors.cluster import RayCluster

    with RayCluster.connect(afar.address) as cluster:
        yield cluster


def noted(run: RunDirectory | None) -> Callable[[dict[str, JsonValue]], None]:
    """Tells a person what happens to workers, and keeps it among the metrics of a run, where there is one."""

    def note(event: dict[str, JsonValue]) -> None:
        if run is not None:
            run.log_metrics({"kind": EVENTS, **event})
        _tell(event)

    return note


def redone_and_set_aside(run: RunDirectory) -> tuple[int, int]:
    """How often work of a run was done again because its worker was lost, and how much of it was given up, over all
    sittings."""
    events = [row for row in run.metrics() if row.get("kind") == EVENTS]
    return sum(row.get("again") is True for row in events), sum(row.get("event") == "set_aside" for row in events)


def _tell(event: dict[str, JsonValue]) -> None:
    node, why = event.get("node"), event.get("why")
    match event.get("event"):
        case "refused":
            say(f"  {node} gets no work: {why}")
        case "lost":
            say(f"  {event.get('item')}: its worker on {node} was lost: {why}")
        case "set_aside":
            say(f"  {event.get('item')} is set aside: {why}")
        case "node":
            offset = event.get("clock_offset_s")
            if isinstance(offset, float) and abs(offset) > _CLOCKS_APART_S:
                say(f"  The clock of {node} is {offset:+.1f} s off; times in what is made there are by that clock.")
