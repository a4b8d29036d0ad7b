"""``patchgym serve``: tasks, sandboxes and grading over HTTP."""

import asyncio
import importlib.util
import logging
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from patchgym.cli.console import say, show_line
from patchgym.cli.workshop import (
    check_sandbox,
    chosen_tasks,
    make_manifest,
    opened_run,
    sandbox_options,
    sandboxes,
)
from patchgym.errors import PrerequisiteError, UsageError
from patchgym.reward import RewardSettings
from patchgym.rollout import Collector
from patchgym.sandbox.environments import build_environment
from patchgym.tasks import TaskSet

_NEEDED = ("jinja2", "starlette", "uvicorn")


@click.command()
@click.argument("taskset", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Beyond this machine with tokens alone.")
@click.option("--port", default=8700, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="F",
    help="A line for each client: its name and its token. [default: one client, $PATCHGYM_TOKEN]",
)
@click.option(
    "--most-sessions", default=64, show_default=True, type=click.IntRange(1, 10_000), help="Sessions at once."
)
@click.option("--per-client", default=32, show_default=True, type=click.IntRange(1), help="Of one client.")
@click.option(
    "--idle-seconds",
    default=600.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="After which a session that nobody asks for is closed.",
)
@click.option("--split", type=click.Choice(["all", "train", "heldout"]), default="all", show_default=True)
@click.option("--task", "ids", multiple=True, metavar="ID", help="Only this task; may be repeated.")
@click.option("--out", type=click.Path(path_type=Path), metavar="RUN", help="Keep every session here, as a run.")
@sandbox_options
def command(
    taskset: Path,
    host: str,
    port: int,
    token_file: Path | None,
    most_sessions: int,
    per_client: int,
    idle_seconds: float,
    split: str,
    ids: tuple[str, ...],
    out: Path | None,
) -> None:
    """Let agents and trainers in any language work on tasks, over HTTP: reset, step, grade, close.

    The address that is printed shows what can be asked for, and /openapi.json says it to programs. Ctrl-C ends it.
    """
    _check_installed()
    from patchgym.serve.app import make_app
    from patchgym.serve.desk import PHASE, Desk, Rules
    from patchgym.serve.keys import read_keys
    from patchgym.serve.serving import address_of, is_loopback, listen, serve

    check_sandbox()
    keys = read_keys(token_file, os.environ.get("PATCHGYM_TOKEN"))
    if not keys and not is_loopback(host):
        raise UsageError(
            f"{host} can be reached from elsewhere, and there is no token",
            why="Whoever reaches it could run commands here.",
            mend="Set PATCHGYM_TOKEN, or name a --token-file.",
        )
    rules = Rules(most_sessions=most_sessions, per_client=per_client, idle_seconds=idle_seconds)
    tasks = TaskSet.load(taskset)
    chosen = chosen_tasks(tasks, split, ids)
    rewards = RewardSettings()
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    with ExitStack() as stack:
        path = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="patchgym-serve-")))
        manifest = make_manifest(PHASE, {"reward": rewards.model_dump(mode="json")}, chosen, 0)
        on = stack.enter_context(listen(host, port))
        run = stack.enter_context(opened_run(path, manifest, chosen, tasks))
        for problem in run.problems:
            say(f"  {problem}")
        factory = stack.enter_context(sandboxes(run.objects))
        collector = Collector(run, factory, build_environment, rewards, 0)
        desk = Desk(chosen, run, collector, rules)

        def ready() -> None:
            show_line(address_of(on))
            say(f"{len(chosen)} tasks. {'Tokens are needed.' if keys else 'No token is needed.'} Ctrl-C ends it.")

        asyncio.run(serve(make_app(desk, keys), desk, on, ready))
        said = desk.stats("")
        say(f"Ended. {said.opened} sessions were opened, {said.graded} graded, {said.reaped} closed for being idle.")


def _check_installed() -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise PrerequisiteError(
            f"Serving needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed",
            mend="pip install 'patchgym[view]'",
        )
