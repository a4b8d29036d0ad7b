"""One step whole: what the model was given and answered, what came of it, what it changed, which tokens it chose."""

from collections.abc import Sequence
from typing import NamedTuple

from patchgym.errors import DataError, UsageError
from patchgym.records import Message, Step, Trajectory, sibling_labels
from patchgym.view.diffs import StateDiff, compare
from patchgym.view.opened import OpenedRun
from patchgym.view.pages.attempt import group_of, kept_filters, step_line
from patchgym.view.query import Query
from patchgym.view.site import Site
from patchgym.view.text import Shown, cut, decoded, is_binary

_INLINE = 12_000
_PAGE_BYTES = 64 << 10
_TOKENS = 1_500
_BOUNDS = (-0.01, -0.1, -0.5, -1.0, -2.0, -4.0)
_FILES = 2_000


class Part(NamedTuple):
    """A text of the step. ``of`` names it in the address of the whole."""

    title: str
    of: str
    shown: Shown
    note: str = ""


class Token(NamedTuple):
    """A sampled token. ``band`` is 0 for the likeliest and 6 for the least likely; ``text`` is None where no tokenizer
    was given."""

    id: int
    text: str | None
    logprob: float | None
    band: int | None
    trained: bool


def step_page(site: Site, run: OpenedRun, query: Query) -> tuple[str, dict[str, object]]:
    """The page of one step."""
    trajectory = run.trajectory(query.needed("id"))
    place, step = step_at(trajectory, query.number("step", 0))
    start = trajectory.steps[0].state_before
    colour = query.choice("colour", ("logprob", "advantage"), "logprob")
    tokens = tokens_of(site, step)
    return "step.html", {
        "attempt": trajectory,
        "step": step,
        "line": step_line(step),
        "filters": kept_filters(query),
        "query": query,
        "before": trajectory.steps[place - 1].index if place else None,
        "after": trajectory.steps[place + 1].index if place + 1 < len(trajectory.steps) else None,
        "place": place,
        "parts": parts_of(step),
        "changed": difference(run, step.state_before, step.state_after),
        "since": difference(run, start, step.state_after) if place else None,
        "tokens": tokens,
        "colour": colour,
        "advantage": advantage_of(run, trajectory, step) if tokens else None,
        "mean_logprob": mean_logprob(step),
    }


def step_at(trajectory: Trajectory, index: int) -> tuple[int, Step]:
    """A step by its index, with its place in the trajectory.

    Raises:
        UsageError: there is none.
    """
    for place, step in enumerate(trajectory.steps):
        if step.index == index:
            return place, step
    raise UsageError(f"{trajectory.id} has no step {index}", why=f"It has {len(trajectory.steps)} steps.")


def parts_of(step: Step) -> list[Part]:
    """The texts of a step, in the order in which they came."""
    parts = []
    for number, message in enumerate(step.prompt):
        title = "What took the place of the conversation before" if step.compacted else f"Given, as {message.role}"
        parts.append(Part(title, f"prompt.{number}", cut(_content(message), _INLINE), _attached(message)))
    if not step.continues:
        if step.message.reasoning:
            parts.append(Part("Thought", "reasoning", cut(step.message.reasoning, _INLINE)))
        parts.append(Part("Answered", "message", cut(_content(step.message), _INLINE), _attached(step.message)))
    seen = step.observation
    if seen is None:
        return parts
    parts.append(Part("Shown to the model", "shown", cut(seen.shown, _INLINE)))
    for name, stream in (("stdout", seen.stdout), ("stderr", seen.stderr)):
        if stream is not None and (stream.size or stream.text):
            kept = f"{stream.size} bytes" + (", cut when it was recorded" if stream.cut else "")
            shown = cut(stream.text, _INLINE)
            if stream.blob is not None and not shown.left_out:
                shown = Shown(shown.text, max(0, stream.size - len(stream.text.encode("utf-8", "surrogateescape"))))
            parts.append(Part(name, name, shown, kept))
    return parts


def _content(message: Message) -> str:
    calls = [f"{call.name} {call.arguments}" for call in message.tool_calls]
    return "\n".join([message.content, *calls] if message.content or not calls else calls)


def _attached(message: Message) -> str:
    told = [f"{one.media_type}, {one.size if one.size is not None else '?'} bytes" for one in message.attachments]
    return f"attached: {'; '.join(told)}" if told else ""


def difference(run: OpenedRun, before: str | None, after: str | None) -> StateDiff | str:
    """What differs between two states, or why that cannot be told."""
    if before is None or after is None:
        return "The record holds no states."
    try:
        return compare(run.objects, before, after)
    except DataError as error:
        return str(error)


def tokens_of(site: Site, step: Step) -> list[Token]:
    """The sampled tokens, the first ones; none where the policy did not give them."""
    if step.tokens is None:
        return []
    ids = step.tokens.sampled_ids[:_TOKENS]
    texts: Sequence[str | None] = site.extras.decode(ids) if site.extras.decode is not None else [None] * len(ids)
    logprobs: Sequence[float | None] = step.tokens.logprobs or [None] * len(ids)
    mask = step.tokens.mask
    return [
        Token(name, text, logprob, band(logprob), bool(mask[at]) if at < len(mask) else False)
        for at, (name, text, logprob) in enumerate(zip(ids, texts, logprobs, strict=False))
    ]


def band(logprob: float | None) -> int | None:
    """How surprising a token was: 0 (a matter of course) to 6."""
    return None if logprob is None else sum(logprob < bound for bound in _BOUNDS)


def mean_logprob(step: Step) -> float | None:
    """The mean log-probability of its tokens, in nats."""
    found = step.tokens.logprobs if step.tokens is not None else None
    return sum(found) / len(found) if found else None


def advantage_of(run: OpenedRun, trajectory: Trajectory, step: Step) -> float | None:
    """What its tokens are trained with: of a search tree, the mean reward below the step less that below its siblings;
    else the attempt's reward less its group's mean. Before any scaling."""
    if trajectory.tree_id is None:
        return group_of(run, trajectory).advantage
    labels = sibling_labels(run.tree(trajectory.tree_id))
    return next((label.advantage for label in labels if label.node == step.index), None)


def text_page(site: Site, run: OpenedRun, query: Query) -> tuple[str, dict[str, object]]:
    """One text of a step whole, a page of bytes at a time."""
    trajectory = run.trajectory(query.needed("id"))
    _, step = step_at(trajectory, query.number("step", 0))
    of = query.needed("of")
    data = whole(run, step, of)
    pages = max(1, -(-len(data) // _PAGE_BYTES))
    page = min(query.number("page", 1, 1), pages)
    part = data[_PAGE_BYTES * (page - 1) : _PAGE_BYTES * page]
    return "text.html", {
        "attempt": trajectory,
        "step": step,
        "of": of,
        "query": query,
        "text": decoded(part),
        "bytes": len(data),
        "page_number": page,
        "pages": pages,
    }


def whole(run: OpenedRun, step: Step, of: str) -> bytes:
    """All that there is of a text.

    Raises:
        UsageError: the step has no such text.
        DataError: it is missing from the object store.
    """
    seen = step.observation
    streams = {"stdout": seen.stdout, "stderr": seen.stderr} if seen is not None else {}
    stream = streams.get(of)
    if stream is not None:
        return run.objects.get(stream.blob) if stream.blob is not None else _bytes(stream.text)
    texts = {"message": _content(step.message), "reasoning": step.message.reasoning}
    texts |= {"shown": seen.shown if seen is not None else None}
    texts |= {f"prompt.{number}": _content(message) for number, message in enumerate(step.prompt)}
    text = texts.get(of)
    if text is None:
        raise UsageError(f"Step {step.index} has no text {of[:40]}")
    return _bytes(text)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def files_page(site: Site, run: OpenedRun, query: Query) -> tuple[str, dict[str, object]]:
    """The file tree before or after a step (without a step: at the end), and one of its files."""
    trajectory = run.trajectory(query.needed("id"))
    index = query.optional("step")
    at = query.choice("at", ("before", "after"), "after")
    step = step_at(trajectory, index)[1] if index is not None else None
    state = trajectory.final_state if step is None else step.state_before if at == "before" else step.state_after
    if state is None:
        raise UsageError(f"{trajectory.id} has no states", why="It was imported from a log, which holds none.")
    return "files.html", {
        "attempt": trajectory,
        "step": step,
        "at": at,
        "changed": set(step.changed_paths or ()) if step is not None else set(),
        **tree_facts(run, state, query),
    }


def tree_facts(run: OpenedRun, state: str, query: Query) -> dict[str, object]:
    """The files of a tree, those that a search names, and the chosen one a page of bytes at a time."""
    entries = run.objects.entries(state)
    sought = query.text("find")
    names = sorted(path for path in entries if sought.lower() in path.lower())
    path = query.text("path")
    entry = entries.get(path) if path else None
    if path and entry is None:
        raise UsageError(f"There was no file {path}")
    data = run.objects.get(entry.id) if entry is not None else b""
    pages = max(1, -(-len(data) // _PAGE_BYTES))
    page = min(query.number("page", 1, 1), pages)
    part = data[_PAGE_BYTES * (page - 1) : _PAGE_BYTES * page]
    return {
        "state": state,
        "query": query,
        "names": names[:_FILES],
        "more": max(0, len(names) - _FILES),
        "path": path,
        "entry": entry,
        "bytes": len(data),
        "binary": is_binary(part),
        "text": "" if is_binary(part) else decoded(part),
        "page_number": page,
        "pages": pages,
    }
