"""Bugs and statements that a model writes: asked for, read strictly, checked, and refused by name.

Any policy will do (``patchgym.policy.Policy``). What it answers is data: it is parsed, never run here.
"""

import ast
import io
import re
import textwrap
import tokenize
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from patchgym.errors import DataError
from patchgym.policy import Policy
from patchgym.records import Message, Sample, Sampling
from patchgym.tasks.bugs.bug import Bug
from patchgym.tasks.bugs.difficulty import Facts
from patchgym.tasks.bugs.programs import parsed
from patchgym.tasks.bugs.survey import FunctionFacts, functions_of
from patchgym.tasks.bugs.symptoms import Symptom

RefusalReason = Literal[
    "cut",
    "no_block",
    "several_blocks",
    "does_not_parse",
    "not_one_function",
    "other_name",
    "other_signature",
    "other_docstring",
    "tells",
    "same_program",
    "empty",
    "too_long",
    "names_place",
    "shows_code",
    "leaks",
]

_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_FENCED = re.compile(r"^(?P<fence>`{3,})[ \t]*(?P<language>\w*)[ \t]*\n(?P<text>.*?)^(?P=fence)[ \t]*$", re.M | re.S)
_PLACE = re.compile(r"\bline\s+\d+|\.py:\d+|\blines\s+\d+", re.IGNORECASE)
_STATEMENT_CHARS = 1500
_SHORTEST_SECRET = 12
_BUG_SYSTEM = (
    "You plant realistic bugs in Python functions for programmers to practise on. You answer with the whole changed "
    "function in one fenced code block and nothing else."
)
_BUG_RULES = (
    "Plant one subtle bug of the kind a good programmer makes by mistake. Keep the name, the signature, the decorators "
    "and the docstring. Write no comment about it. The function must still parse and mostly work."
)
_STATEMENT_SYSTEM = (
    "You write bug reports for a Python package. You tell what goes wrong from a user's view in a few plain sentences. "
    "You never guess at the cause, never name a file or a line, and show no code blocks."
)


class Refused(Exception):
    """A model's answer is not taken; ``reason`` is the name under which it is counted.

    Of any answer. ``cut``: it ended at the token limit. Of a bug. ``no_block``, ``several_blocks``: not exactly one
    fenced block. ``does_not_parse``: no Python. ``not_one_function``: something else than one function.
    ``other_name``, ``other_signature`` (with decorators), ``other_docstring``: those were to stay. ``tells``: it has a
    comment that the function did not have. ``same_program``: nothing is broken. Of a statement. ``empty``,
    ``too_long``: no text, or over 1,500 characters. ``names_place``: a line number. ``shows_code``: a code block.
    ``leaks``: a text that must stay secret.
    """

    def __init__(self, reason: RefusalReason, why: str = "") -> None:
        super().__init__(f"{reason}: {why}" if why else reason)
        self.reason: RefusalReason = reason
        self.why = why


@dataclass(frozen=True)
class Asked:
    """The function that a model is asked to break: ``source`` is the whole file at ``path``, ``name`` its qualified
    name in it."""

    path: str
    source: str
    name: str


async def model_bug(policy: Policy, asked: Asked, sampling: Sampling) -> Bug:
    """Have a model break a function.

    Raises:
        Refused: the answer is no such bug.
        DataError: there is no function of that name in the source.
        ContextLengthError, EndpointError: the model could not be asked.
    """
    place = _place(asked)
    facts = place.facts
    prompt = f"{_BUG_RULES}\n\n```python\n{place.text}```"
    answer = await _ask(policy, _BUG_SYSTEM, prompt, sampling)
    source = broken_source(asked, parse_function(answer))
    return Bug(
        kind="model",
        changes={asked.path: source},
        operators=(f"model:{policy.version}",),
        functions=(facts.key,),
        lines={asked.path: tuple(facts.lines)},
        change=f"{policy.version} rewrote {facts.key}",
        facts=Facts(complexity=facts.complexity, lines=len(facts.lines)),
    )


async def model_statement(
    policy: Policy, package: str, symptoms: Sequence[Symptom], sampling: Sampling, *, secrets: Collection[str] = ()
) -> str:
    """Have a model tell what goes wrong in ``package``, from ``symptoms``; ``secrets`` are texts that the statement
    must not hold (lines of the gold patch).

    Raises:
        Refused: the answer is no such statement.
        ContextLengthError, EndpointError: the model could not be asked.
    """
    seen = "\n".join(_told(symptom) for symptom in symptoms)
    prompt = f"Package: {package}\nWhat was seen in failing runs:\n{seen}\n\nWrite the bug report."
    return parse_statement(await _ask(policy, _STATEMENT_SYSTEM, prompt, sampling), secrets)


def parse_function(answer: str) -> str:
    """The text of the one fenced block of an answer, without common indentation, ending in a newline.

    Raises:
        Refused: there is none, or more than one.
    """
    blocks = list(_FENCED.finditer(answer.replace("\r\n", "\n")))
    if len(blocks) != 1:
        raise Refused("several_blocks" if blocks else "no_block", f"{len(blocks)} fenced blocks")
    return textwrap.dedent(blocks[0]["text"]).strip("\n") + "\n"


def broken_source(asked: Asked, function: str) -> str:
    """The source file with ``function`` (the text of a whole function, not indented) in place of the one asked for.

    Raises:
        Refused: it may not take that place.
        DataError: there is no function of that name in the source.
    """
    place = _place(asked)
    old, new = _only_function(place.text), _only_function(function)
    if new.name != old.name:
        raise Refused("other_name", new.name)
    if _signature(new) != _signature(old):
        raise Refused("other_signature")
    if ast.get_docstring(new, clean=False) != ast.get_docstring(old, clean=False):
        raise Refused("other_docstring")
    told = _comments(function) - _comments(place.text)
    if told:
        raise Refused("tells", min(told))
    if ast.dump(new) == ast.dump(old):
        raise Refused("same_program")
    placed = textwrap.indent(function.rstrip("\n"), place.indent).replace("\n", place.newline)
    source = "".join([*place.before, placed, place.newline if place.ends_line else "", *place.after])
    if parsed(source) is None:
        raise Refused("does_not_parse", "not in its place")
    return source


def parse_statement(answer: str, secrets: Collection[str] = ()) -> str:
    """The statement that an answer is, without white space around it.

    Raises:
        Refused: it is empty, too long, names a place, shows code or holds one of ``secrets`` (those of at least 12
            characters count; white space does not).
    """
    text = answer.strip()
    if not text:
        raise Refused("empty")
    if len(text) > _STATEMENT_CHARS:
        raise Refused("too_long", f"{len(text)} characters")
    if "```" in text:
        raise Refused("shows_code")
    place = _PLACE.search(text)
    if place:
        raise Refused("names_place", place[0])
    plain = " ".join(text.split())
    for secret in secrets:
        line = " ".join(secret.split())
        if len(line) >= _SHORTEST_SECRET and line in plain:
            raise Refused("leaks", line)
    return text


async def _ask(policy: Policy, system: str, prompt: str, sampling: Sampling) -> str:
    messages = [Message(role="system", content=system), Message(role="user", content=prompt)]
    sample: Sample = await policy.sample(messages, (), sampling)
    if sample.finish_reason == "length":
        raise Refused("cut", f"after {sampling.max_tokens} tokens")
    return sample.message.content


def _told(symptom: Symptom) -> str:
    """A symptom as a line of the prompt."""
    shown = symptom.call or symptom.name or "a call"
    match symptom.kind:
        case "value":
            return f"- {shown}: got {symptom.got}, expected {symptom.expected}"
        case "raised":
            return f"- {shown}: raised {symptom.error}"
        case "silent":
            return f"- {shown}: did not raise {symptom.error}"
        case _:
            return f"- {shown}: {symptom.got}"


@dataclass(frozen=True)
class _Place:
    """Where a function stands: its text without indentation and with plain newlines, and the lines around it."""

    facts: FunctionFacts
    text: str
    indent: str
    newline: str
    ends_line: bool
    before: tuple[str, ...]
    after: tuple[str, ...]


def _place(asked: Asked) -> _Place:
    found = {facts.name: facts for facts in functions_of(asked.path, asked.source)}.get(asked.name)
    if found is None:
        raise DataError(f"There is no function {asked.name} in {asked.path}")
    lines = tuple(_LINES.findall(asked.source))
    start, end = found.first_line - 1, found.lines.stop - 1
    first = lines[start]
    indent = first[: len(first) - len(first.lstrip(" \t"))]
    text = "".join(line.removeprefix(indent) for line in lines[start:end])
    return _Place(
        facts=found,
        text=text.replace("\r\n", "\n").rstrip("\n") + "\n",
        indent=indent,
        newline="\r\n" if "\r\n" in text else "\n",
        ends_line=text.endswith(("\n", "\r")),
        before=lines[:start],
        after=lines[end:],
    )


def _only_function(text: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    tree = parsed(text)
    if tree is None:
        raise Refused("does_not_parse")
    match tree.body:
        case [ast.FunctionDef() | ast.AsyncFunctionDef() as only]:
            return only
        case _:
            raise Refused("not_one_function", f"{len(tree.body)} statements")


def _signature(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """All of a function but its name and its body, so that two can be compared."""
    returned = ast.dump(function.returns) if function.returns is not None else ""
    decorators = [ast.dump(decorator) for decorator in function.decorator_list]
    return f"{type(function).__name__} {ast.dump(function.args)} {returned} {decorators}"


def _comments(text: str) -> set[str]:
    """The comments of a piece of Python that parses."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.string for token in tokens if token.type == tokenize.COMMENT}
