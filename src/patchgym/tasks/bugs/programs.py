"""Reading foreign Python: what a text says to Python, without a word about its style on standard error."""

import ast
import threading
import warnings

_QUIET = threading.Lock()


def parsed(source: str | bytes) -> ast.Module | None:
    """The syntax tree of ``source``; None where it is no Python (of the running version)."""
    try:
        with _QUIET, warnings.catch_warnings():  # an odd escape in a foreign file is no news
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def says(source: bytes) -> str | None:
    """What a piece of a source file, with its indentation, says to Python, written so that two pieces can be compared;
    None where it is no Python."""
    tree = parsed(b"if True:\n" + source if source[:1].isspace() else source)
    return ast.dump(tree) if tree is not None else None
