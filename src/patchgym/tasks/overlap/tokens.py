"""Text as comparison sees it: tokens without whitespace and comments, words, and runs of them.

Nothing here parses a language whole, so that a fragment of a patch, code for another Python and text in another
language all have tokens. The results are the same on every machine and under every Python.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib import resources

_STRING = (
    r"""[A-Za-z]{0,2}(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
)
_REST = r"[^\W\d]\w*|\d[\w.]*|==|!=|<=|>=|->|=>|:=|\*\*|&&|\|\||<<|>>|::|\+\+|--|[-+*/%&|^@]=|\S"
_HASH = re.compile(rf"(#[^\n]*)|({_STRING}|//|{_REST})", re.DOTALL)
_SLASH = re.compile(rf"(//[^\n]*|/\*.*?\*/)|({_STRING}|{_REST})", re.DOTALL)
_SLASHED = (
    *(".c", ".cc", ".cpp", ".cs", ".cu", ".dart", ".go", ".h", ".hpp", ".java", ".js", ".jsx", ".kt", ".m", ".mjs"),
    *(".php", ".rs", ".scala", ".swift", ".ts", ".tsx", ".zig"),
)
_QUOTES = re.compile(r"""([A-Za-z]{0,2})("{3}|'{3}|"|')""")
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+")


def code_tokens(text: str, path: str = "") -> list[str]:
    """The tokens of code or a fragment of it, without comments; ``path`` tells how its language writes them (without
    it: as Python does). Strings are one token each, whatever their quotes."""
    pattern = _SLASH if path.lower().endswith(_SLASHED) else _HASH
    tokens = [token for comment, token in pattern.findall(text) if not comment]
    return [_requoted(token) if token[-1] in "\"'" else token for token in tokens]


def words(text: str) -> list[str]:
    """The words of prose in lower case, without punctuation; a Chinese, Japanese or Korean character is a word."""
    return _WORD.findall(text.lower())


def renamed(tokens: Sequence[str]) -> list[str]:
    """The tokens with every name replaced by ``v0``, ``v1`` and so on, in the order in which names first come.

    Keywords, built-in names, attributes and literals stay; of formatted strings only that there is one, for they hold
    names.
    """
    kept = _kept_names()
    known: dict[str, str] = {}
    found = []
    previous = ""
    for token in tokens:
        if token[-1] == '"':
            found.append('f""' if "f" in token.partition('"')[0].lower() else token)
        elif (token[0].isalpha() or token[0] == "_") and previous != "." and token not in kept:
            found.append(known.setdefault(token, f"v{len(known)}"))
        else:
            found.append(token)
        previous = token
    return found


def runs(tokens: Sequence[str], length: int) -> Iterator[tuple[str, ...]]:
    """Every run of ``length`` tokens, in order; all of them as one run where there are fewer, none where there is
    none."""
    if 0 < len(tokens) < length:
        yield tuple(tokens)
    yield from zip(*(tokens[start:] for start in range(length)), strict=False)


@lru_cache(maxsize=1)
def _kept_names() -> frozenset[str]:
    """Python's keywords and built-in names; a list of its own, so that keys do not depend on the running Python."""
    text = resources.files("patchgym.tasks.overlap").joinpath("kept_names.txt").read_text(encoding="utf-8")
    return frozenset(text.split())


def _requoted(token: str) -> str:
    match = _QUOTES.match(token) if len(token) > 1 else None
    return f'{match[1]}"{token[match.end() : -len(match[2])]}"' if match else token
