"""Function removal: a function keeps its signature and its docstring and loses everything else."""

from collections.abc import Iterator

import libcst as cst

from patchgym.tasks.bugs.operators.base import Edit, Place, looks_at


@looks_at(cst.FunctionDef)
def remove_body(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """Everything behind a function's docstring becomes ``raise NotImplementedError``. Functions without a docstring
    are left alone: nothing would tell what to write."""
    match node:
        case cst.FunctionDef(
            body=cst.IndentedBlock(
                body=[
                    cst.SimpleStatementLine(body=[cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString())]),
                    first,
                    *_,
                ] as body
            )
        ):
            if len(body) > 2 or not isinstance(first, cst.SimpleStatementLine) or _does_something(first):
                yield Edit(place.start(first), place.end(body[-1]), "raise NotImplementedError")
        case _:
            pass


def _does_something(line: cst.SimpleStatementLine) -> bool:
    match line.body:
        case [cst.Pass() | cst.Raise() | cst.Expr(value=cst.Ellipsis())]:
            return False
        case _:
            return True
