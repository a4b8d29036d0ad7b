"""What an agent's commands make of a file's text, as far as that can be told without running them.

``sed`` and ``perl`` scripts are read for their plain forms: ``s/a/b/``, ``d``, addresses by number or by a text. Their
patterns are hostile, so that no regular expression of theirs is ever run: what is no plain text with ``.*`` in it stays
unknown. Of a Python program, ``replace`` and ``re.sub`` with constant texts are read.
"""

import ast
import re

from patchgym.reward.hacks.names import Names
from patchgym.reward.hacks.shell import Command
from patchgym.reward.hacks.source import parse
from patchgym.reward.hacks.trees import walk

_LONGEST = 400_000
_PLAIN_ESCAPES = frozenset("/.*[]^$\\\"'(){}+?|&-#,=:;!@<>~` ")


def edited(text: str, script: str, *, extended: bool) -> str | None:
    """The text after a ``sed`` script; None where the script is not understood."""
    if len(text) > _LONGEST:
        return None
    for part in _commands(script):
        changed = _one(text, part.strip(), extended)
        if changed is None:
            return None
        text = changed
    return text


def _commands(script: str) -> list[str]:
    """The commands of a script that are set apart by semicolons or lines, outside of ``s`` commands."""
    found, start, inside = [], 0, 0
    delimiter = ""
    at = 0
    while at < len(script):
        char = script[at]
        if char == "\\":
            at += 2
            continue
        if not delimiter and char == "s" and script[start:at].strip(" 0123456789,$") == "" and at + 1 < len(script):
            delimiter, inside = script[at + 1], 0
            at += 2
            continue
        if delimiter and char == delimiter:
            inside += 1
            if inside == 2:
                delimiter = ""
        elif not delimiter and char in ";\n":
            found.append(script[start:at])
            start = at + 1
        at += 1
    found.append(script[start:])
    return [one for one in found if one.strip()]


def _one(text: str, command: str, extended: bool) -> str | None:
    """One command with its address."""
    address = re.match(r"(?:(\d+)(?:,(\d+|\$))?|/((?:[^/\\]|\\.)*)/)?\s*", command)
    assert address is not None
    rest = command[address.end() :]
    lines = text.split("\n")
    if address[1]:
        last = len(lines) if address[2] == "$" else int(address[2] or address[1])
        chosen = set(range(int(address[1]) - 1, min(last, len(lines))))
    elif address[3]:
        pieces = _pieces(address[3], extended)
        if pieces is None:
            return None
        chosen = {at for at, line in enumerate(lines) if _span(line, pieces, 0) is not None}
    else:
        chosen = set(range(len(lines)))
    if rest == "d":
        return "\n".join(line for at, line in enumerate(lines) if at not in chosen)
    parts = _split(rest)
    if parts is None:
        return None
    pattern, new, flags = parts
    pieces = _pieces(pattern, extended)
    put = _replacement(new)
    if pieces is None or put is None or set(flags) - set("gIi"):
        return None
    done = [_replaced(line, pieces, put, "g" in flags) if at in chosen else line for at, line in enumerate(lines)]
    return "\n".join(done)


def _split(command: str) -> tuple[str, str, str] | None:
    """Pattern, replacement and flags of an ``s`` command."""
    if command[:1] != "s" or len(command) < 4:
        return None
    mark = command[1]
    parts: list[str] = []
    word, at = "", 2
    while at < len(command):
        if command[at] == "\\" and at + 1 < len(command):
            word += command[at + 1] if command[at + 1] == mark else command[at : at + 2]
            at += 2
            continue
        if command[at] == mark and len(parts) < 2:
            parts.append(word)
            word = ""
        else:
            word += command[at]
        at += 1
    return (parts[0], parts[1], word.strip()) if len(parts) == 2 else None


def _pieces(pattern: str, extended: bool) -> list[str] | None:
    """The plain texts of a pattern, with ``.*`` between them; None for other patterns. Empty ends mean anchors: the
    first starts with ``^`` where the line must begin so."""
    pieces, word, at = [], "", 0
    while at < len(pattern):
        char = pattern[at]
        two = pattern[at : at + 2]
        if char == "\\" and len(two) == 2:
            special = not extended and two[1] in "(){}+?|"
            if special or two[1] not in _PLAIN_ESCAPES:
                return None
            word += two[1]
            at += 2
        elif two == ".*":
            pieces.append(word)
            word = ""
            at += 2
        elif (char == "^" and at == 0) or (char == "$" and at == len(pattern) - 1):
            word += "\n"
            at += 1
        elif char == "." or char in "*[" or (extended and char in "(){}+?|"):
            if char != ".":
                return None
            word += char  # a dot that stands for itself in nearly every script
            at += 1
        else:
            word += char
            at += 1
    return [*pieces, word]


def _span(line: str, pieces: list[str], start: int) -> tuple[int, int] | None:
    """Where a pattern stands in a line."""
    whole = f"\n{line}\n"
    at = begin = -1
    for number, piece in enumerate(pieces):
        last = number == len(pieces) - 1
        greedy = last and number > 0
        found = whole.rfind(piece, max(at, start)) if greedy else whole.find(piece, max(at, start))
        if found < 0:
            return None
        begin = found if number == 0 else begin
        at = found + len(piece)
    return max(begin - 1, 0), min(max(at - 1, 0), len(line))


def _replacement(new: str) -> str | None:
    if re.search(r"(?<!\\)&|\\[0-9ULEul]", new):
        return None
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], new)


def _replaced(line: str, pieces: list[str], new: str, everywhere: bool) -> str:
    start = 0
    for _ in range(50):
        span = _span(line, pieces, start)
        if span is None or span[0] >= span[1]:
            return line
        line = line[: span[0]] + new + line[span[1] :]
        start = span[0] + len(new) + 1
        if not everywhere:
            return line
    return line


def scripted(command: Command) -> list[tuple[str, bool]]:
    """The scripts of a ``sed -i`` or ``perl -i`` command, each with whether its patterns are extended ones."""
    words = command.words[1:]
    flags = [word for word in words if re.match(r"-\w", word)]
    if not any(re.match(r"-\w*i|--in-place", word) for word in (*flags, *words)):
        return []
    extended = command.program == "perl" or any(re.match(r"-\w*[rE]", flag) for flag in flags)
    named = [words[at + 1] for at, word in enumerate(words[:-1]) if re.fullmatch(r"-\w*e", word)]
    plain = [word for word in words if not word.startswith("-")]
    return [(script, extended) for script in (named or plain[:1])]


def by_python(text: str, program: str) -> str | None:
    """A file's text after the ``replace`` and ``re.sub`` calls of a Python program; None where it has none that is
    understood."""
    tree = parse(program).tree
    if tree is None:
        return None
    names = Names(walk(tree))
    changed = text
    for node in walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = names.dotted(node.func) or ""
        if isinstance(node.func, ast.Attribute) and node.func.attr == "replace" and len(node.args) >= 2:
            old, new = names.text(node.args[0]), names.text(node.args[1])
            changed = changed.replace(old, new) if old and new is not None else changed
        elif name == "re.sub" and len(node.args) >= 3:
            old, new = names.text(node.args[0]), names.text(node.args[1])
            pieces = _pieces(old, extended=True) if old else None
            if pieces is not None and new is not None:
                changed = "\n".join(_replaced(line, pieces, new, everywhere=True) for line in changed.split("\n"))
    return changed if changed != text else None
