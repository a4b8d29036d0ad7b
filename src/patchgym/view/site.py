"""What all pages share: the opened runs, the templates, and what only the command line can give."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import jinja2
from markupsafe import Markup
from pydantic import JsonValue

from patchgym.errors import UsageError
from patchgym.records import TaskSetManifest
from patchgym.view import text
from patchgym.view.opened import OpenedRun
from patchgym.view.query import address

Answer = Literal["yes", "no", "unsure"]


class Given(NamedTuple):
    """A person's answer to one item of a spot check."""

    label: str
    notes: str


class SpotCheck(Protocol):
    """A blind comparison of rewards with a person's judgement, kept where ``patchgym spotcheck`` keeps it."""

    @property
    def items(self) -> Sequence[tuple[str, str]]:
        """The items in the order in which they are shown, each with its trajectory."""
        ...

    def given(self) -> Mapping[str, Given]:
        """The answers so far, by item."""
        ...

    def give(self, item: str, label: Answer, notes: str) -> None:
        """Keep an answer."""
        ...

    def outcome(self) -> Sequence[tuple[str, str]]:
        """How far reward and person agree, as names and figures."""
        ...


class Finding(NamedTuple):
    """What an audit says of a task."""

    task: str
    check: str
    evidence: str
    mend: str


class SetFacts(NamedTuple):
    """What a task set says of how it was made, and what an audit of it found, where one was asked for."""

    name: str
    manifest: TaskSetManifest
    findings: Sequence[Finding]


@dataclass(frozen=True)
class Extras:
    """What pages show and cannot make themselves; None where the command line does not offer it.

    ``checks`` judges a run now; ``spotcheck`` opens its spot check of a seed; ``decode`` turns token ids into text, a
    piece for each; ``sets`` are task sets beside the runs.
    """

    checks: Callable[[Path], dict[str, JsonValue]] | None = None
    spotcheck: Callable[[OpenedRun, int], SpotCheck] | None = None
    decode: Callable[[Sequence[int]], list[str]] | None = None
    sets: Sequence[SetFacts] = ()


@dataclass(frozen=True)
class Site:
    """The runs that are looked at, by name, and how pages about them are made. ``root`` begins every address."""

    runs: Mapping[str, OpenedRun]
    root: str = ""
    extras: Extras = Extras()
    templates: jinja2.Environment = field(default_factory=lambda: environment())

    def run(self, name: str) -> OpenedRun:
        """One run.

        Raises:
            UsageError: it is not among those that were opened.
        """
        if name not in self.runs:
            raise UsageError(f"No run {name} is opened here", why=f"These are: {', '.join(list(self.runs)[:10])}.")
        return self.runs[name]

    def render(self, template: str, run: OpenedRun | None, page: str, values: Mapping[str, object]) -> str:
        """A page. Templates call ``link(page, **values)`` for an address within the run, and ``to(run, page)``."""
        name = run.name if run is not None else None
        return self.templates.get_template(template).render(
            {
                **values,
                "site": self,
                "run": run,
                "page": page,
                "progress": run.progress() if run is not None else None,
                "link": partial(_link, self.root, name),
                "to": partial(address, self.root),
                "root": self.root,
            }
        )


def _link(root: str, run: str | None, page: str = "", /, **values: str | int | None) -> str:
    return address(root, run, page, values)


def environment() -> jinja2.Environment:
    """The templates' environment: everything is escaped, and characters that act or hide are written out."""
    found = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "shown": text.shown,
        "one_line": text.one_line,
        "size": text.size,
        "figure": text.figure,
        "share": text.share,
        "words": lambda value: str(value).replace("_", " "),
    }
    return found


def asset(name: str) -> str:
    """A file that pages are made with."""
    return (resources.files("patchgym.view") / "assets" / name).read_text(encoding="utf-8")


def _template(name: str) -> str | None:
    file = resources.files("patchgym.view") / "templates" / name
    return file.read_text(encoding="utf-8") if file.is_file() else None


def _finalized(value: object) -> object:
    if value is None:
        return "–"
    return text.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
