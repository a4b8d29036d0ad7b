"""``patchgym view``: runs as a local web page, or as one self-contained page."""

import importlib.util
import webbrowser
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchgym.cli.console import say, show_line, stage
from patchgym.errors import PrerequisiteError, UsageError
from patchgym.store.looking import find_runs
from patchgym.store.whole import write_whole

if TYPE_CHECKING:
    from patchgym.view.opened import OpenedRun
    from patchgym.view.site import Site

_NEEDED = ("jinja2", "starlette", "uvicorn")


@click.command()
@click.argument("paths", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Where to listen. [default: the first free one from 8421 on]"
)
@click.option("--open", "browse", is_flag=True, help="Open the page in a browser.")
@click.option(
    "--static", type=click.Path(path_type=Path), metavar="FILE", help="Write one self-contained page, and stop."
)
@click.option(
    "--attempts", default=40, show_default=True, type=click.IntRange(0, 2000), help="Of those, whole in FILE."
)
@click.option(
    "--tasks",
    "sets",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="SET",
    help="Show how this task set was made.",
)
@click.option("--tokenizer", metavar="MODEL", help="Show tokens as this model's text: a known name or a directory.")
def command(
    paths: tuple[Path, ...],
    port: int | None,
    browse: bool,
    static: Path | None,
    attempts: int,
    sets: tuple[Path, ...],
    tokenizer: str | None,
) -> None:
    """Look at runs in a browser: compared, round by round, task by task, step by step.

    RUN is a run directory or a folder of them; a run in progress is followed. The page is served on this machine alone,
    at an address that holds a token; Ctrl-C ends it.
    """
    _check_installed()
    runs = _found(paths)
    if static is not None and len(runs) > 1:
        raise UsageError(f"A self-contained page is of one run, and these are {len(runs)}", mend="Name one of them.")
    from patchgym.cli.viewing import make_extras
    from patchgym.view.opened import open_runs
    from patchgym.view.serving import new_token
    from patchgym.view.site import Site

    token = new_token()
    with ExitStack() as stack:
        opened = open_runs(runs)
        for run in opened:
            stack.callback(run.close)
        extras = make_extras(sets, tokenizer)
        site = Site({run.name: run for run in opened}, "" if static is not None else f"/{token}", extras)
        if static is not None:
            _write(site, opened[0], static, attempts)
        else:
            _serve(site, opened, token, port, browse)


def _check_installed() -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise PrerequisiteError(
            f"Pages need {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed",
            mend="pip install 'patchgym[view]'",
        )


def _found(paths: Sequence[Path]) -> list[Path]:
    """The run directories that are meant: each once."""
    found: dict[Path, Path] = {}
    for path in paths:
        inner = find_runs(path) if path.is_dir() else [path]
        if not inner:
            raise UsageError(f"There is no run in {path}", mend="Name a directory that holds a run.json, or one above.")
        found |= {one.resolve(): one for one in inner}
    return list(found.values())


def _serve(site: "Site", opened: "Sequence[OpenedRun]", token: str, port: int | None, browse: bool) -> None:
    from patchgym.view.app import make_app
    from patchgym.view.serving import listen, serve

    on = listen(port)

    def ready(address: str) -> None:
        url = f"{address}/{token}/"
        show_line(url)
        say("Ctrl-C ends it. The address holds a token: whoever has it and reaches this machine can look.")
        for run in opened:
            run.follow()
        if browse:
            webbrowser.open(url)

    try:
        serve(make_app(site, token), on, ready)
    except KeyboardInterrupt:
        say("\nEnded.")


def _write(site: "Site", run: "OpenedRun", out: Path, attempts: int) -> None:
    from patchgym.view.static import static_page

    total = run.index.behind()
    with stage("Read the run", total) as shown:
        while run.index.step():
            shown.update(total - run.index.behind(), total)
    page = static_page(site, run, attempts)
    if not out.parent.is_dir():
        raise UsageError(f"There is no folder {out.parent}", mend="Make it, or name another place.")
    write_whole(out, page.encode("utf-8"))
    show_line(f"{out}: {len(page.encode('utf-8')) / 1e6:.1f} MB")
