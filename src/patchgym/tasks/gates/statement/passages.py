"""Leaks that share words with the fix: its lines, its names, and the tests that are hidden.

A run of tokens counts where it is *telling*: it stands in a line that the patch adds or removes, holds an operator and
more than one name or number, and stands nowhere else in the workspace and in no test. What a failing test prints of its
own values is therefore no leak.
"""

import io
import re
import tokenize
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from patchgym.tasks.gates.statement.answer import Answer, Token, code_tokens, tokens_of, words_of
from patchgym.tasks.gates.statement.leak import Leak, LeakKind
from patchgym.testrun import function_of

_RUN = 5  # tokens of a longer line that must be shared
_COMMENT_RUN = 8
_TEST_RUN = 10
_PUNCTUATION = frozenset(",.:;")
_SPAN = re.compile(r"`([^`\n]+)`")
_TEST_NAME = re.compile(r"\b[Tt]est[A-Za-z0-9_]*\b")
# What makes a plain word a name: how it is written, or what stands before it.
_CALLED = re.compile(
    r"(?:\b(?:use|uses|using|call|calls|calling|apply|applying|import|importing|via|invoke|invoking|through|helper|function"
    r"|method|variable|parameter|argument|attribute|called|named)|调用|使用|用|函数|变量|参数|方法)\s*[`'\"(]*$",
    re.IGNORECASE,
)
_WITH = re.compile(r"\b(?:with|from|needs?|lacks?)\s*$", re.IGNORECASE)
_IMPORT = re.compile(r"(?:from\s+\S+\s+)?import\s")
_SPELLED = re.compile(
    r"instead_of|rather_than|swap\w*_(?:arg|param|operand|line|order)\w*"
    r"|(?:invert|negat|flip)\w*_(?:cond|check|test|guard|if)\w*"
    r"|(?:remov|delet|drop)[a-z]*(?:_[a-z]+)?_(?:try|except|cond|check|guard|call|return|cast)\w*"
    r"|(?:missing|add|insert|restor)[a-z]*(?:_[a-z]+)?_(?:return|guard|break|await|else|cast|check|call|not|cond)\w*|off_by_one"
    r"|(?:^|_)(?:lt|le|gt|ge)_(?:to|not|vs|should_be|becomes)_(?:lt|le|gt|ge)(?:_|$)"
    r"|(?:less|greater)_than_or_equal_not_|should_be_(?:and|or|not|lt|le|gt|ge)$"
)
_EXCHANGE = re.compile(r"(?:replac|chang|turn)[a-z]*_(\w+?)_(?:with|by|to|into)_(\w+)")
_OPERATORS = dict(
    zip(
        ("lt", "le", "lte", "gt", "ge", "gte", "eq", "ne", "plus", "add", "minus", "sub", "times", "mul", "div", "mod"),
        ("<", "<=", "<=", ">", ">=", ">=", "==", "!=", "+", "+", "-", "-", "*", "*", "/", "%"),
        strict=True,
    )
)


def passage_leaks(statement: str, answer: Answer) -> Iterator[Leak]:
    """Runs of the patch's tokens, and of its comments, in a statement."""
    told = tokens_of(statement)
    runs = {size: _index(told, size) for size in (*range(3, _RUN + 1), _COMMENT_RUN)}
    for side, lines in (("adds", answer.added), ("removes", answer.removed)):
        for line in lines:
            tokens = _trimmed(code_tokens(line))
            for window in _windows(tokens):
                for start in runs[len(window)].get(tuple(token.text for token in window), ()):
                    if not answer.is_common(token.text for token in window):
                        yield _passage(statement, told[start : start + len(window)], line, side)
            yield from _spans(statement, tokens, line, side, answer)


def _windows(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """The telling runs of one line of the patch."""
    code = [token for token in tokens if token.code]
    size = min(len(tokens), _RUN)
    if len(code) >= 3:
        for start in range(len(tokens) - size + 1):
            window = tokens[start : start + size]
            names = {token.text for token in window if token.text[0].isalnum() or token.text[0] == "_"}
            marks = {token.text for token in window if token.code} - names - _PUNCTUATION
            if sum(token.code for token in window) >= size - 1 and len(names) >= 2 and marks:
                yield window
    if not code:  # a comment of its own
        for start in range(len(tokens) - _COMMENT_RUN + 1):
            yield tokens[start : start + _COMMENT_RUN]


def _spans(statement: str, tokens: Sequence[Token], line: str, side: str, answer: Answer) -> Iterator[Leak]:
    """Short whole lines in backticks, such as ``return low``, and expressions such as ``total // size``."""
    wanted = [token.text for token in tokens if token.code]
    for match in _SPAN.finditer(statement):
        inner = [Token(one.text, one.start + match.start(1), one.end + match.start(1)) for one in tokens_of(match[1])]
        words = [token.text for token in inner]
        marks = {word for word in words if not (word[0].isalnum() or word[0] == "_")} - _PUNCTUATION
        whole = words == wanted and len(words) >= 2
        part = len(words) >= 3 and bool(marks) and _holds(wanted, words)
        if (whole or part) and not answer.is_common(words):
            yield _passage(statement, inner, line, side)


def _holds(tokens: Sequence[str], part: Sequence[str]) -> bool:
    """Whether one run of tokens stands in another."""
    return any(tokens[start : start + len(part)] == part for start in range(len(tokens) - len(part) + 1))


def name_leaks(statement: str, answer: Answer) -> Iterator[Leak]:
    """Names that only the fix brings in. A name that is a plain lower-case word counts where it is used as a name."""
    imports = {word for line in answer.added if _IMPORT.match(line) for word in words_of(line)}
    for token in tokens_of(statement):
        if token.text not in answer.new_names or len(token.text) < 2:
            continue
        before, after = statement[max(0, token.start - 40) : token.start], statement[token.end : token.end + 2]
        compound = "_" in token.text.strip("_") or any(char.isupper() or char.isdigit() for char in token.text[1:])
        written = before.endswith(("`", ".")) or after.startswith(("`", "(", "=", " ="))
        imported = token.text in imports
        if compound or written or _CALLED.search(before) or (imported and _WITH.search(before)):
            why = "Neither the workspace nor a test has this name: the fix brings it in."
            yield _leak_at("fix_name", statement, token, token, token.text, why)


def test_leaks(statement: str, answer: Answer) -> Iterator[Leak]:
    """Tests whose names spell the answer, whether the statement or the list of failing tests names them, and names and
    code of hidden tests."""
    places = [(match[0], *match.span()) for match in _TEST_NAME.finditer(statement)]
    named, end = {name for name, _, _ in places}, len(statement)
    shown = dict.fromkeys(function_of(test)[1].rpartition(".")[2] for test in answer.failing_tests)
    places += [(name, end, end) for name in shown if name not in named]
    for name, start, end in places:
        spelled = _spelled(name, answer)
        if spelled:
            why = "The test's name says what to change."
            yield Leak(kind="test_name", start=start, end=end, words=name, matches=spelled, why=why)
    yield from _hidden(statement, answer)


def _spelled(name: str, answer: Answer) -> str:
    """What of the fix a test's name spells; empty for nothing."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    match = _SPELLED.search(plain.removeprefix("test").strip("_"))
    if match is not None:
        return match[0].strip("_")
    match = _EXCHANGE.search(plain)
    if match is not None and _named(match[1], answer.gone_tokens) and _named(match[2], answer.new_tokens):
        return match[0]
    for new in sorted(answer.new_names):
        parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", new).lower().strip("_")
        used = re.search(rf"(?:uses?|calls?|via|with|using|through)_{re.escape(parts)}(?:_|$)", plain)
        if len(parts) >= 3 and (used or ("_" in parts and re.search(rf"(?:^|_){re.escape(parts)}(?:_|$)", plain))):
            return new
    return ""


def _named(words: str, tokens: Collection[str]) -> bool:
    """Whether words joined by underscores name one of the tokens of a change."""
    lower = {token.lower().strip("_") for token in tokens}
    return words in lower or any(word in lower or _OPERATORS.get(word, word) in lower for word in words.split("_"))


def _hidden(statement: str, answer: Answer) -> Iterator[Leak]:
    if not answer.hidden_tests:
        return
    shown = frozenset().union(*(set(re.findall(r"\w+", text)) for text in answer.workspace.values()))
    told = tokens_of(statement)
    why = "The agent must not know this test."
    for name in sorted({function_of(test)[1].rpartition(".")[2] for test in answer.hidden_tests}):
        for token in told if name not in shown else ():
            if token.text == name and not statement.startswith(".py", token.end):  # a file may have the test's name
                yield _leak_at("hidden_test", statement, token, token, name, why)
    runs = _index(told, _TEST_RUN)
    if not runs:
        return
    for path, source in sorted(answer.hidden_sources.items()):
        code, strings = tokens_of(source), list(_strings(source))
        for start in range(len(code) - _TEST_RUN + 1):
            key = tuple(token.text for token in code[start : start + _TEST_RUN])
            if key not in runs:
                continue
            first, last = code[start].start, code[start + _TEST_RUN - 1].end
            if any(begin <= first and last <= end for begin, end in strings):
                continue  # a value, such as a pattern or an address, that a failing test prints
            for place in runs[key]:
                if not answer.is_shown(key):
                    yield _leak_at("hidden_test", statement, told[place], told[place + _TEST_RUN - 1], path, why)


def _strings(source: str) -> Iterator[tuple[int, int]]:
    """Where the string literals of a Python source begin and end; none of one that cannot be read."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    with suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.STRING:
                (first, left), (last, right) = token.start, token.end
                yield starts[first - 1] + left, starts[last - 1] + right


def _index(tokens: Sequence[Token], size: int) -> dict[tuple[str, ...], list[int]]:
    found: dict[tuple[str, ...], list[int]] = {}
    for start in range(len(tokens) - size + 1):
        found.setdefault(tuple(token.text for token in tokens[start : start + size]), []).append(start)
    return found


def _trimmed(tokens: list[Token]) -> list[Token]:
    """Without the punctuation that ends a line of code and that nobody repeats in a sentence."""
    while tokens and tokens[-1].text in (":", ",", "(", "[", "{"):
        tokens = tokens[:-1]
    return tokens


def _passage(statement: str, tokens: Sequence[Token], line: str, side: str) -> Leak:
    return _leak_at("passage", statement, tokens[0], tokens[-1], line, f"It stands in a line that the fix {side}.")


def _leak_at(kind: LeakKind, statement: str, first: Token, last: Token, matches: str, why: str) -> Leak:
    words = statement[first.start : last.end]
    return Leak(kind=kind, start=first.start, end=last.end, words=words, matches=matches, why=why)
