"""What a statement must not tell: the change, taken apart into lines, tokens and names.

Code and statements are cut by one and the same tokenizer (ASCII words, numbers, operators; quotes and all else fall
away), so that a line of code is found again in prose whatever its spacing and quoting. Every token of code knows
whether it is code, or prose: the inside of a string or of a comment.
"""

import difflib
import keyword
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from patchgym.content.unified import Hunk, parse_patch

_TOKEN = r"[A-Za-z_][A-Za-z0-9_]*|\d+(?:\.\d+)?|[=!<>]=|->|:=|\*\*|//|<<|>>|[-+*/%&|^@]=|[-+*/%<>=!&|^~@.,:;()\[\]{}]"
_TOKENS = re.compile(_TOKEN)
_DROPPED = r"[^A-Za-z0-9_\-+*/%<>=!&|^~@.,:;()\[\]{}]*"  # what falls away between tokens
_CODE = re.compile(
    rf"""(?P<comment>\#.*)|(?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")|(?P<token>{_TOKEN})""", re.VERBOSE
)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYWORDS = frozenset(keyword.kwlist)
_WORD_END = re.compile(r"\w$")


class Token(NamedTuple):
    """A token, where it stands in its text, and whether it is code (else prose inside a string or a comment)."""

    text: str
    start: int
    end: int
    code: bool = True


def tokens_of(text: str) -> list[Token]:
    """The tokens of any text, all of them taken for code."""
    return [Token(match[0], match.start(), match.end()) for match in _TOKENS.finditer(text)]


def code_tokens(line: str) -> list[Token]:
    """The tokens of one line of Python."""
    found: list[Token] = []
    for match in _CODE.finditer(line):
        if match["token"] is not None:
            found.append(Token(match[0], match.start(), match.end()))
        else:
            found += [
                Token(inner[0], match.start() + inner.start(), match.start() + inner.end(), False)
                for inner in _TOKENS.finditer(match[0])
            ]
    return found


def words_of(text: str) -> set[str]:
    """Every ASCII word of a text."""
    return set(_WORD.findall(text))


@dataclass(frozen=True)
class Answer:
    """The solution of a task and what an agent sees of it anyway.

    ``workspace`` maps the paths that the agent starts from to their texts; ``failing_tests`` are the ids it is shown;
    ``hidden_tests`` those it is not, and ``hidden_sources`` the whole test files that hold them; ``commits`` the ids of
    the fix and the base, where there are any.
    """

    gold_patch: str
    workspace: Mapping[str, str]
    failing_tests: tuple[str, ...] = ()
    hidden_tests: tuple[str, ...] = ()
    hidden_sources: Mapping[str, str] = field(default_factory=dict)
    commits: tuple[str, ...] = ()

    @cached_property
    def hunks(self) -> tuple[tuple[str, Hunk], ...]:
        """Each hunk of the patch with the path that it changes.

        Raises:
            PatchError: the patch does not parse.
        """
        parts = parse_patch(self.gold_patch)
        return tuple((part.source or part.target or "", hunk) for part in parts for hunk in part.hunks)

    @cached_property
    def key_files(self) -> frozenset[str]:
        """The paths that the patch changes."""
        parts = parse_patch(self.gold_patch)
        return frozenset(path for part in parts for path in (part.source, part.target) if path is not None)

    @cached_property
    def removed(self) -> tuple[str, ...]:
        """The lines that the patch takes out, without their indentation; no empty ones."""
        return tuple(line for _, hunk in self.hunks for line in _only_in(hunk.old, hunk.new))

    @cached_property
    def added(self) -> tuple[str, ...]:
        """The lines that the patch brings in, without their indentation; no empty ones."""
        return tuple(line for _, hunk in self.hunks for line in _only_in(hunk.new, hunk.old))

    @cached_property
    def gone_tokens(self) -> frozenset[str]:
        """Tokens of code that the removed lines have more often than the added ones."""
        return frozenset(_counted(self.removed) - _counted(self.added))

    @cached_property
    def new_tokens(self) -> frozenset[str]:
        """Tokens of code that the added lines have more often than the removed ones."""
        return frozenset(_counted(self.added) - _counted(self.removed))

    @cached_property
    def known_words(self) -> frozenset[str]:
        """Words that stand in the workspace or in a test: telling them tells nothing of the fix."""
        texts = [*self.workspace.values(), *self.hidden_sources.values()]
        return frozenset().union(*(words_of(text) for text in texts)) if texts else frozenset()

    @cached_property
    def new_names(self) -> frozenset[str]:
        """Names that only the fix brings in."""
        return frozenset(name for name in _counted(self.added) if _WORD.fullmatch(name)) - self.known_words - _KEYWORDS

    def is_common(self, tokens: Iterable[str]) -> bool:
        """Whether a run of tokens stands in the workspace outside the lines that the patch takes out, or in a test:
        then it points at no particular place."""
        pattern = _spaced(tuple(tokens))
        elsewhere = sum(len(pattern.findall(text)) for text in self.workspace.values())
        if elsewhere > sum(len(pattern.findall(line)) for line in self.removed):
            return True
        return any(pattern.search(text) for text in self.hidden_sources.values())

    def is_shown(self, tokens: Iterable[str]) -> bool:
        """Whether a run of tokens stands anywhere in the workspace."""
        pattern = _spaced(tuple(tokens))
        return any(pattern.search(text) for text in self.workspace.values())


def _only_in(these: tuple[bytes, ...], those: tuple[bytes, ...]) -> list[str]:
    """The lines of one side that the other side lacks, in order, stripped."""
    old, new = ([line.decode("utf-8", "replace").strip() for line in side] for side in (those, these))
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [
        line for tag, _, _, start, end in matcher.get_opcodes() if tag != "equal" for line in new[start:end] if line
    ]


def _counted(lines: Iterable[str]) -> Counter[str]:
    return Counter(token.text for line in lines for token in code_tokens(line) if token.code)


def _spaced(tokens: tuple[str, ...]) -> re.Pattern[str]:
    """Tokens with anything between them that falls away."""
    first = r"\b" if tokens[0][0].isidentifier() else ""
    last = r"\b" if _WORD_END.search(tokens[-1]) else ""
    return re.compile(first + _DROPPED.join(map(re.escape, tokens)) + last)
