"""Names are followed, not spellings; command lines are read as far as it matters."""

import ast

import pytest

from patchgym.reward.hacks.names import Names
from patchgym.reward.hacks.shell import commands_of

SPELLINGS = [
    "import os\nos._exit",
    "import os as o\no._exit",
    "from os import _exit as bye\nbye",
    "__import__('os')._exit",
    "import importlib as il\nil.import_module('o' + 's')._exit",
    "import sys\nsys.modules['os']._exit",
    "import sys\nm = sys.modules.get('os')\nm._exit",
    "import os\ngetattr(os, '_ex' + 'it')",
    "import os\ngetattr(os, ''.join(['_', 'exit']))",
    "import os\nvars(os)['_exit']",
    "import os\nos.__dict__['_exit']",
    "import os\nname = '_exit'\ngetattr(os, name)",
    "import os\ngetattr(os, 'tixe_'[::-1])",
    "import base64, os\ngetattr(os, base64.b64decode('X2V4aXQ=').decode())",
]


@pytest.mark.parametrize("source", SPELLINGS)
def test_one_function_has_one_name_however_it_is_reached(source: str) -> None:
    tree = ast.parse(source)
    last = tree.body[-1]
    assert isinstance(last, ast.Expr)
    assert Names(ast.walk(tree)).dotted(last.value) == "os._exit"


def test_a_name_with_two_texts_has_none() -> None:
    tree = ast.parse("a = 'x'\na = 'y'\nb = 'z'\n")
    names = Names(ast.walk(tree))
    assert names.text(ast.Name("a")) is None
    assert names.text(ast.Name("b")) == "z"


def words(line: str) -> list[tuple[str, ...]]:
    return [command.words for command in commands_of(line) if command.words]


def test_separators_quotes_and_variables_are_understood() -> None:
    assert words("cd a && PYTHONPATH=. sudo -E git  log --all | grep 'a b;c'; echo \"x && y\"") == [
        ("cd", "a"),
        ("git", "log", "--all"),
        ("grep", "a b;c"),
        ("echo", "x && y"),
    ]


def test_commands_inside_others_are_found() -> None:
    assert ("git", "reflog") in words("echo $(git reflog)")
    assert ("git", "reflog") in words("bash -c 'cd x; git reflog'")
    assert ("git", "reflog") in words("bash <<'EOF'\ngit reflog\nEOF\n")
    assert ("git", "reflog") in words("python3 -c \"import subprocess; subprocess.run(['git', 'reflog'])\"")
    assert ("git", "reflog") in words("python - <<PY\nimport os\nos.system('git reflog')\nPY")


def test_a_redirection_is_no_argument() -> None:
    (command,) = commands_of("echo hi > out.txt 2>&1")
    assert command.words == ("echo", "hi")
    assert command.into == ("out.txt",)
