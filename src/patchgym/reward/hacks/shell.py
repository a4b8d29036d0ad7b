"""Command lines, read far enough to know what is run on what. Nothing is expanded or run.

Quotes, separators, redirections, here-documents, ``sh -c`` and ``$(...)`` are understood; of a Python program on the
command line, the calls that run commands, open files or fetch addresses are read as the commands that do the same.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from patchgym.reward.hacks.names import Names
from patchgym.reward.hacks.source import parse
from patchgym.reward.hacks.trees import walk

_LIMIT = 20_000
_MOST = 400
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1([^\n]*)\n(.*?)(?:\n[ \t]*\2(?=\s|$)|\Z)", re.DOTALL)
_INNER = re.compile(r"\$\(([^()]{1,2000})\)|`([^`]{1,2000})`")
_SHELLS = frozenset({"sh", "bash", "zsh", "dash"})
_BEFORE = frozenset(
    {
        "sudo",
        "time",
        "nohup",
        "setsid",
        "env",
        "exec",
        "command",
        "then",
        "do",
        "else",
        "xargs",
        "eval",
        "stdbuf",
        "nice",
        "{",
        "(",
        "!",
    }
)
_INSTALLED = frozenset(sys.stdlib_module_names) | {"pytest", "_pytest", "pluggy", "numpy", "pip", "setuptools"}
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_OPERATORS = re.compile(r"&&|\|\||;;|;|\||&(?![>&])|\n|\(|\)")


@dataclass(frozen=True)
class Command:
    """One simple command: its words, the files that it is redirected into, the variables set for it."""

    words: tuple[str, ...]
    into: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    piped: bool = False
    """Whether its output goes to the next command."""
    document: str = ""
    """A here-document that it is given."""

    @property
    def program(self) -> str:
        """The name of the program, without its folder."""
        return self.words[0].rsplit("/", 1)[-1] if self.words else ""

    @property
    def program_text(self) -> str:
        """A Python program that it carries, empty for other commands."""
        return _program_text(self)

    @property
    def text(self) -> str:
        """Its words, with single spaces."""
        return " ".join(self.words)


def commands_of(line: str, depth: int = 0) -> list[Command]:
    """The simple commands of a command line, in order, those inside of others behind them."""
    found: list[Command] = []
    text = line[:_LIMIT]
    documents: list[str] = []

    def keep(match: re.Match[str]) -> str:
        documents.append(match[4])
        return f" \0{len(documents) - 1}\0 {match[3]}\n"

    text = _HEREDOC.sub(keep, text)
    for words, operator in _simple(text):
        command = _command(words, documents, piped=operator == "|")
        if command.words or command.into or command.variables:
            found.append(command)
        if len(found) >= _MOST:
            break
    if depth < 3:
        inner = [one or other for one, other in _INNER.findall(text)]
        for command in list(found):
            inner += _scripts(command)
            found += python_commands(_program_text(command))
        for script in inner[:50]:
            found += commands_of(script, depth + 1)
    return found


def _simple(text: str) -> Iterator[tuple[list[str], str]]:
    """Words of each simple command with the operator behind it."""
    words: list[str] = []
    word: list[str] | None = None
    at, size = 0, len(text)
    while at < size:
        char = text[at]
        if char in "'\"":
            end = _closing(text, at, char)
            word = [*(word or []), text[at + 1 : end].replace('\\"', '"') if char == '"' else text[at + 1 : end]]
            at = end + 1
        elif char == "\\" and at + 1 < size:
            word = word or []
            word += [] if text[at + 1] == "\n" else [text[at + 1]]
            at += 2
        elif char == "$" and text[at : at + 2] == "$(" and (end := text.find(")", at)) > 0:
            word = [*(word or []), text[at : end + 1]]
            at = end + 1
        elif (match := _OPERATORS.match(text, at)) and not (char == "&" and at and text[at - 1] in "<>"):
            if word is not None:
                words.append("".join(word))
            yield words, match.group()
            words, word = [], None
            at = match.end()
        elif char.isspace():
            if word is not None:
                words.append("".join(word))
            word = None
            at += 1
        elif char == "#" and word is None:
            end = text.find("\n", at)
            at = end if end >= 0 else size
        else:
            word = word if word is not None else []
            word.append(char)
            at += 1
    if word is not None:
        words.append("".join(word))
    yield words, ""


def _closing(text: str, at: int, quote: str) -> int:
    end = text.find(quote, at + 1)
    while quote == '"' and end > 0 and text[end - 1] == "\\":
        end = text.find(quote, end + 1)
    return end if end >= 0 else len(text)


def _command(words: list[str], documents: list[str], *, piped: bool) -> Command:
    kept: list[str] = []
    into: list[str] = []
    variables: list[tuple[str, str]] = []
    document = ""
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if word.startswith("\0") and word.endswith("\0") and word[1:-1].isdigit():
            document = documents[int(word[1:-1])]
        elif match := re.fullmatch(r"(?:\d*|&)>{1,2}\|?(.*)", word, re.DOTALL):
            target = match[1] or (queue.pop(0) if queue else "")
            into += [target] if target and not target.startswith("&") else []
        elif (match := _ASSIGNED.fullmatch(word)) and not [
            w for w in kept if w not in ("export", "env", "declare", "set", "alias")
        ]:
            variables.append((match[1], match[2]))
            kept += [word] if kept and kept[0] == "alias" else []
        elif not kept and word in _BEFORE:
            queue = _options(queue) if word in ("sudo", "xargs", "nice", "stdbuf", "env") else queue
        elif not kept and word == "timeout":
            queue = _options(queue)[1:]
        else:
            kept.append(word)
    return Command(tuple(kept), tuple(into), tuple(variables), piped, document)


def _options(queue: list[str]) -> list[str]:
    while queue and queue[0].startswith("-"):
        queue = queue[1:]
    return queue


def _scripts(command: Command) -> list[str]:
    """Scripts for a shell that a command carries."""
    if command.program in _SHELLS:
        given = [command.words[at + 1] for at, word in enumerate(command.words[:-1]) if re.fullmatch(r"-\w*c", word)]
        return given or ([command.document] if command.document else [])
    return []


def _program_text(command: Command) -> str:
    """A Python program that a command carries."""
    if not re.fullmatch(r"python[\d.]*|ipython|pypy3?", command.program):
        return ""
    for at, word in enumerate(command.words[:-1]):
        if word == "-c":
            return command.words[at + 1]
    return command.document


def python_commands(text: str) -> list[Command]:
    """What a Python program runs, opens and fetches, as commands."""
    tree = parse(text).tree if text.strip() else None
    if tree is None:
        return []
    names = Names(walk(tree))
    found: list[Command] = []
    for node in walk(tree):
        if isinstance(node, ast.Call) and len(found) < _MOST:
            found += _as_commands(node, names, text)
    return found


def _as_commands(node: ast.Call, names: Names, whole: str) -> list[Command]:
    name = (names.dotted(node.func) or "").removeprefix("builtins.")
    first = node.args[0] if node.args else None
    text = names.text(first) or ""
    if name.startswith("subprocess.") or name in ("os.system", "os.popen", "os.execvp", "pty.spawn"):
        if isinstance(first, ast.List | ast.Tuple):
            return [Command(tuple(names.text(one) or "?" for one in first.elts))]
        return commands_of(text, depth=2) if text else []
    if re.search(r"(?:urlopen|urlretrieve|urllib\.request\.Request|requests\.\w+|httpx\.\w+)$", name) and text:
        return [Command(("curl", text))]
    if name in ("open", "io.open") and first is not None:
        mode = names.text(node.args[1]) if len(node.args) > 1 else "r"
        path = text or ast.unparse(first)
        return [Command((), (path,), document=whole) if set(mode or "r") & set("wax+") else Command(("cat", path))]
    if name in ("os.kill", "os.killpg") and first is not None:
        each = "/proc" in whole and not isinstance(first, ast.Constant) and "getpid" not in ast.unparse(first)
        return [Command(("kill", "-1" if each else ast.unparse(first).replace("os.getppid()", "$PPID")))]
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("write_text", "write_bytes"):
        module = _module_file(node.func.value, whole, names)
        return [Command((), (module,))] if module is not None else _of_path(node, names)
    if name.endswith((".read_text()", ".read_bytes()")) or (isinstance(node.func, ast.Attribute) and text == ""):
        return _of_path(node, names)
    if (
        name in ("shutil.copy", "shutil.copyfile", "shutil.move", "os.rename", "os.replace", "os.symlink")
        and len(node.args) > 1
    ):
        return [Command(("cp", text or "?", names.text(node.args[1]) or ast.unparse(node.args[1])))]
    if name == "py_compile.compile":
        return [
            Command(
                ("py_compile", *(names.text(one) or "?" for one in [*node.args, *(k.value for k in node.keywords)]))
            )
        ]
    return [Command(("ls", text))] if name in ("os.listdir", "os.walk", "glob.glob", "os.scandir") and text else []


def _module_file(owner: ast.expr, whole: str, names: Names) -> str | None:
    """Where an imported module stands, for a path that is made of its ``__file__``: as if it were installed."""
    given = [owner]
    tree = parse(whole).tree if isinstance(owner, ast.Name) else None
    for node in walk(tree) if tree is not None else ():
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == getattr(owner, "id", ""):
                given.append(value)
    if len(given) > 2:
        return None  # a name with two readings
    for one in (inner for part in given for inner in walk(part)):
        if isinstance(one, ast.Attribute) and one.attr in ("__file__", "__path__"):
            module = names.dotted(one.value) or ""
            if module.split(".")[0] in _INSTALLED:
                return f"/usr/lib/python3/{module.replace('.', '/')}.py"
    return None


def _of_path(node: ast.Call, names: Names) -> list[Command]:
    """``Path("x").read_text()`` and its siblings."""
    if (
        not isinstance(node.func, ast.Attribute)
        or not isinstance(node.func.value, ast.Call)
        or not node.func.value.args
    ):
        return []
    path = names.text(node.func.value.args[0])
    if path is None or not (names.dotted(node.func.value.func) or "").endswith("Path"):
        return []
    if node.func.attr in ("read_text", "read_bytes", "iterdir", "glob", "rglob", "open"):
        return [Command(("cat", path))]
    return [Command((), (path,))] if node.func.attr in ("write_text", "write_bytes", "unlink", "touch") else []
