"""Functions written another way that does the same: locals renamed, conditional expressions as statements, independent
assignments in another order, the body in an inner function.

What an honest solution may do as well must not change the answer to a probe that counts; a rewrite is a second solution
to hold that against. It is read and written as text, never run here.
"""

from collections.abc import Collection
from typing import cast

import libcst as cst
import libcst.matchers as m

_LOOKS_AT_ITSELF = frozenset({"locals", "vars", "eval", "exec", "super", "dir", "__class__"})
_SCOPES = m.FunctionDef() | m.Lambda() | m.ClassDef() | m.Global() | m.Nonlocal() | m.Del() | m.Match() | m.NamedExpr()


def rewritten(source: str, functions: Collection[str]) -> str:
    """``source`` with those of ``functions`` (qualified names) written another way; as it is where it does not parse or
    nothing can be changed safely."""
    try:
        tree = cst.parse_module(source)
        return tree.visit(_Rewriter(frozenset(functions))).code
    except (cst.ParserSyntaxError, RecursionError):
        return source


class _Rewriter(cst.CSTTransformer):
    def __init__(self, functions: frozenset[str]) -> None:
        self._functions = functions
        self._path: list[str] = []

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._path.append(node.name.value)

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        self._path.pop()
        return updated_node

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._path.append(node.name.value)

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        name = ".".join(self._path)
        self._path.pop()
        return _another_way(updated_node) if name in self._functions else updated_node


def _another_way(function: cst.FunctionDef) -> cst.FunctionDef:
    changed = cast(cst.FunctionDef, function.visit(_Statements()))
    if _names(changed) & _LOOKS_AT_ITSELF:
        return changed
    if not m.findall(changed.body, _SCOPES):
        changed = _renamed(changed)
    return _wrapped(changed)


def _names(node: cst.CSTNode) -> set[str]:
    return {cast(cst.Name, name).value for name in m.findall(node, m.Name())}


def _parameters(function: cst.FunctionDef) -> set[str]:
    return {cast(cst.Param, one).name.value for one in m.findall(function.params, m.Param())}


def _assigned(function: cst.FunctionDef) -> set[str]:
    """The names that a function binds in its body."""
    found: set[str] = set()
    kinds = m.AssignTarget() | m.AugAssign() | m.AnnAssign() | m.For() | m.AsName() | m.CompFor()
    for node in m.findall(function.body, kinds):
        target = node.name if isinstance(node, cst.AsName) else getattr(node, "target", None)
        found |= _bound(target)
    return found


def _bound(target: object) -> set[str]:
    """The names that an assignment target binds; an attribute or an item of something binds none."""
    if isinstance(target, cst.Name):
        return {target.value}
    if isinstance(target, cst.Tuple | cst.List):
        return set().union(*(_bound(element.value) for element in target.elements))
    return set()


class _Statements(cst.CSTTransformer):
    """Writes conditional expressions that are returned as statements, and swaps assignments of constants."""

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        body: list[cst.BaseStatement] = []
        for statement in updated_node.body:
            body.append(_returned_by_cases(statement) or statement)
            if len(body) > 1 and _constant(body[-1]) and _constant(body[-2]) and _target(body[-1]) != _target(body[-2]):
                body[-1], body[-2] = body[-2], body[-1]
        return updated_node.with_changes(body=body)


def _returned_by_cases(statement: cst.BaseStatement) -> cst.BaseStatement | None:
    simple = m.SimpleStatementLine(body=[m.Return(value=m.IfExp())])
    if not m.matches(statement, simple):
        return None
    value = cast(cst.IfExp, m.findall(statement, m.IfExp())[0])
    return cst.If(
        test=cst.parse_expression(f"({cst.Module([]).code_for_node(value.test)})"),
        body=_block(value.body),
        orelse=cst.Else(body=_block(value.orelse)),
    )


def _block(value: cst.BaseExpression) -> cst.IndentedBlock:
    returned = cst.parse_statement(f"return ({cst.Module([]).code_for_node(value)})")
    return cst.IndentedBlock(body=[returned])


def _constant(statement: cst.BaseStatement) -> bool:
    literal = m.Integer() | m.Float() | m.SimpleString() | m.List(elements=[]) | m.Dict(elements=[])
    line = m.SimpleStatementLine(body=[m.Assign(targets=[m.AssignTarget(target=m.Name())], value=literal)])
    return m.matches(statement, line)


def _target(statement: cst.BaseStatement) -> str:
    return cast(cst.Name, m.findall(statement, m.Name())[0]).value


def _renamed(function: cst.FunctionDef) -> cst.FunctionDef:
    taken = _names(function)
    renames: dict[str, str] = {}
    for name in sorted(_assigned(function) - _parameters(function)):
        fresh = f"{name}_value"
        if fresh not in taken and not name.startswith("__"):
            renames[name] = fresh
    return cast(cst.FunctionDef, function.visit(_Renamer(renames)))


class _Renamer(cst.CSTTransformer):
    """Renames variables; attributes and the names of keyword arguments stay as they are."""

    def __init__(self, renames: dict[str, str]) -> None:
        self._renames = renames

    def visit_Attribute_attr(self, node: cst.Attribute) -> None:
        self._kept = self._renames
        self._renames = {}

    def leave_Attribute_attr(self, node: cst.Attribute) -> None:
        self._renames = self._kept

    def visit_Arg_keyword(self, node: cst.Arg) -> None:
        self._kept = self._renames
        self._renames = {}

    def leave_Arg_keyword(self, node: cst.Arg) -> None:
        self._renames = self._kept

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        return updated_node.with_changes(value=self._renames.get(updated_node.value, updated_node.value))


def _wrapped(function: cst.FunctionDef) -> cst.FunctionDef:
    """The function with its body in an inner one, where that changes nothing."""
    block = function.body
    bound = _parameters(function) & _assigned(function)
    if (
        not isinstance(block, cst.IndentedBlock)
        or function.asynchronous is not None
        or bound
        or m.findall(block, m.Yield() | m.Await() | m.Nonlocal() | m.Global() | m.Del() | m.NamedExpr())
        or m.findall(block, m.Import() | m.ImportFrom())
    ):
        return function
    body = list(block.body)
    first = [body.pop(0)] if body and m.matches(body[0], _DOCSTRING) else []
    if not body:
        return function
    inner = cst.FunctionDef(name=cst.Name("inner_part"), params=cst.Parameters(), body=cst.IndentedBlock(body=body))
    called = cst.parse_statement("return inner_part()")
    return function.with_changes(body=block.with_changes(body=[*first, inner, called]))


_DOCSTRING = m.SimpleStatementLine(body=[m.Expr(value=m.SimpleString())])
