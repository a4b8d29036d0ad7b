"""Hiding tests: some test functions are taken out of the files that an agent sees."""

import ast
from collections.abc import Collection

import libcst as cst

from patchgym.errors import DataError


def without_functions(source: str, names: Collection[str]) -> str:
    """``source`` without the functions and methods of these qualified names, their decorators and the comments right
    above them. A body that would be left empty gets ``pass``. Everything else stays as it is.

    Raises:
        DataError: ``source`` does not parse, or a name is not defined in it.
    """
    try:
        module = cst.parse_module(source)
    except cst.ParserSyntaxError as error:
        raise DataError("The test file does not parse", why=str(error)) from error
    removal = _Removal(frozenset(names))
    reduced = module.visit(removal)
    missing = sorted(removal.wanted - removal.removed)
    if missing:
        raise DataError(f"There is no test function {missing[0]}", why="It may be inherited or made while running.")
    return reduced.code


def defined_functions(source: str) -> frozenset[str]:
    """Qualified names of the functions and methods that ``source`` defines, without those inside other functions; empty
    where it does not parse."""
    found: set[str] = set()

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(prefix + child.name)
            else:
                visit(child, f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix)

    try:
        visit(ast.parse(source), "")
    except (SyntaxError, ValueError):
        return frozenset()
    return frozenset(found)


class _Removal(cst.CSTTransformer):
    def __init__(self, wanted: frozenset[str]) -> None:
        super().__init__()
        self.wanted = wanted
        self.removed: set[str] = set()
        self._names: list[str] = []

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._names.append(node.name.value)

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        self._names.pop()
        return updated_node

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        self._names.append(node.name.value)
        return False

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef | cst.RemovalSentinel:
        name = ".".join(self._names)
        self._names.pop()
        if name not in self.wanted:
            return updated_node
        self.removed.add(name)
        return cst.RemoveFromParent()

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        if updated_node.body:
            return updated_node
        return updated_node.with_changes(body=[cst.SimpleStatementLine([cst.Pass()])])
