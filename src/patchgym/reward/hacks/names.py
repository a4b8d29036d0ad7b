"""What names stand for in a module: ``o._exit`` is ``os._exit`` after ``import os as o``.

Names are followed, not spellings: through imports, assignments, ``getattr``, ``__import__``, ``sys.modules`` and texts
that are put together from constants. Nothing is run, and nothing is decided where two readings are possible: the first
one that was seen counts.
"""

import ast
import base64
import binascii
import re
from collections.abc import Iterable

_PLACE = re.compile(r"%[-+ 0#]*\d*(?:\.\d+)?[sdrfgi]")
_TEXT_LIMIT = 20_000
_DEPTH = 40
_TRANSPARENT = frozenset({"vars", "builtins.vars"})
_IMPORTERS = frozenset({"__import__", "importlib.import_module", "importlib.__import__", "builtins.__import__"})
_MODULES = frozenset({"sys.modules", "sys.modules.get", "sys.modules.setdefault", "sys.modules.__getitem__"})
_GETTERS = frozenset({"getattr", "builtins.getattr", "inspect.getattr_static"})


class Names:
    """The names of one module. ``nodes`` are all its nodes, or those of the part that is looked at with its imports."""

    def __init__(self, nodes: Iterable[ast.AST] = (), outer: "Names | None" = None) -> None:
        self._stands: dict[str, str] = dict(outer._stands) if outer else {}
        self._texts: dict[str, str | None] = dict(outer._texts) if outer else {}
        self.defined: set[str] = set(outer.defined) if outer else set()
        self.imported: set[str] = set(outer.imported) if outer else set()
        assigned: list[tuple[str, ast.expr]] = []
        for node in nodes:
            match node:
                case ast.Import():
                    self._import(node)
                case ast.ImportFrom():
                    self._import_from(node)
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    self.defined.add(node.name)
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.NamedExpr(target=ast.Name(id=name), value=value)
                ):
                    assigned.append((name, value))
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    assigned.append((name, value))
        for name, value in assigned:
            self._assign(name, value)

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.imported.add(alias.name)
            first = alias.name.split(".", 1)[0]
            self._stands.setdefault(alias.asname or first, alias.name if alias.asname else first)

    def _import_from(self, node: ast.ImportFrom) -> None:
        module = "." * node.level + (node.module or "")
        self.imported.add(module)
        for alias in node.names:
            self._stands.setdefault(alias.asname or alias.name, f"{module}.{alias.name}")

    def _assign(self, name: str, value: ast.expr) -> None:
        stands = self.dotted(value) if not isinstance(value, ast.Constant) else None
        given = isinstance(value, ast.Call | ast.Subscript) and stands is not None and not stands.endswith("()")
        if stands is not None and stands != name and ("." in stands or stands in self.imported or given):
            self._stands.setdefault(name, stands)
        text = self.text(value)
        known = self._texts.get(name, text)
        self._texts[name] = text if known == text else None

    def dotted(self, node: ast.AST | None, depth: int = 0) -> str | None:
        """The dotted name that an expression stands for, as far as it can be told."""
        if node is None or depth > _DEPTH:
            return None
        match node:
            case ast.Name(id=name):
                if name == "__builtins__":
                    return "builtins"
                return self._stands.get(name, name)
            case ast.Attribute(value=value, attr=attr):
                owner = self.dotted(value, depth + 1)
                if owner is None:
                    return None
                return owner if attr == "__dict__" else f"{owner}.{attr}"
            case ast.Subscript(value=value, slice=index):
                return self._item(self.dotted(value, depth + 1), self.text(index))
            case ast.Call(func=func, args=args):
                return self._call(self.dotted(func, depth + 1), args, depth)
            case ast.NamedExpr(value=value) | ast.Await(value=value):
                return self.dotted(value, depth + 1)
            case ast.BoolOp(op=ast.Or(), values=[first, *_]) if isinstance(first, ast.Call):
                return self.dotted(first, depth + 1)
        return None

    def _item(self, owner: str | None, key: str | None) -> str | None:
        if owner is None or key is None:
            return None
        return key if owner in _MODULES else f"{owner}.{key}"

    def _call(self, func: str | None, args: list[ast.expr], depth: int) -> str | None:
        if func is None or not args:
            return f"{func}()" if func is not None else None
        if func in _IMPORTERS or func in _MODULES:
            return self.text(args[0]) or f"{func}()"
        if func in _GETTERS and len(args) > 1:
            owner, attr = self.dotted(args[0], depth + 1), self.text(args[1])
            return f"{owner}.{attr}" if owner and attr else None
        if func in _TRANSPARENT:
            return self.dotted(args[0], depth + 1)
        return f"{func}()"

    def text(self, node: ast.AST | None, depth: int = 0) -> str | None:
        """The constant text of an expression, put together where it is built from constants."""
        if node is None or depth > _DEPTH:
            return None
        found: str | None = None
        match node:
            case ast.Constant(value=str() as found):
                pass
            case ast.Constant(value=bytes() as data):
                found = data.decode("latin-1")
            case ast.Name(id=name):
                return self._texts.get(name)
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                parts = self.text(left, depth + 1), self.text(right, depth + 1)
                found = parts[0] + parts[1] if parts[0] is not None and parts[1] is not None else None
            case ast.BinOp(op=ast.Mod(), left=left, right=right):
                found = self._formatted(self.text(left, depth + 1), right, depth)
            case ast.BinOp(op=ast.Mult(), left=left, right=ast.Constant(value=int(times))) if 0 <= times <= 200:
                part = self.text(left, depth + 1)
                found = part * times if part is not None else None
            case ast.JoinedStr(values=values):
                found = self._joined("", [v.value if isinstance(v, ast.FormattedValue) else v for v in values], depth)
            case ast.Subscript(value=value, slice=ast.Slice(lower=None, upper=None, step=ast.UnaryOp())):
                whole = self.text(value, depth + 1)
                found = whole[::-1] if whole is not None else None
            case ast.Call(func=func, args=args):
                found = self._built(func, args, depth)
        return found[:_TEXT_LIMIT] if found is not None else None

    def _formatted(self, text: str | None, right: ast.expr, depth: int) -> str | None:
        """``"%d %s" % (5, "a")`` with constants alone."""
        values = right.elts if isinstance(right, ast.Tuple) else [right]
        for one in values:
            number = one.value if isinstance(one, ast.Constant) and isinstance(one.value, int | float) else None
            part = str(number) if number is not None else self.text(one, depth + 1)
            if text is None or part is None:
                return None
            text = _PLACE.sub(part.replace("\\", "\\\\"), text, count=1)
        return text

    def _joined(self, glue: str, parts: list[ast.expr], depth: int) -> str | None:
        texts = [self.text(part, depth + 1) for part in parts[:500]]
        return glue.join(text for text in texts if text is not None) if None not in texts else None

    def _built(self, func: ast.expr, args: list[ast.expr], depth: int) -> str | None:
        """Text out of ``"".join([...])``, decoding calls and ``chr``."""
        if isinstance(func, ast.Attribute):
            owner = self.text(func.value, depth + 1)
            if func.attr == "join" and args and isinstance(args[0], ast.List | ast.Tuple) and owner is not None:
                return self._joined(owner, args[0].elts, depth)
            if func.attr in ("decode", "encode", "strip", "format", "lower") and not args and owner is not None:
                return owner
            if func.attr in ("decode", "encode"):
                return self.text(func.value, depth + 1)
        name = self.dotted(func)
        if name == "chr" and args and isinstance(args[0], ast.Constant) and isinstance(args[0].value, int):
            return chr(args[0].value) if 0 <= args[0].value < 0x110000 else None
        inner = self.text(args[0], depth + 1) if args else None
        return _decoded(name or "", inner) if inner is not None else None


def _decoded(name: str, text: str) -> str | None:
    try:
        if name in ("base64.b64decode", "base64.standard_b64decode", "base64.urlsafe_b64decode"):
            return base64.b64decode(text[:_TEXT_LIMIT].encode("latin-1", "replace")).decode("utf-8", "replace")
        if name in ("bytes.fromhex", "bytearray.fromhex", "binascii.unhexlify"):
            return bytes.fromhex(text[:_TEXT_LIMIT]).decode("utf-8", "replace")
    except (ValueError, binascii.Error):
        return None
    if name in ("str", "bytes", "pathlib.Path", "Path", "pathlib.PurePath", "os.path.expanduser", "textwrap.dedent"):
        return text
    return None
