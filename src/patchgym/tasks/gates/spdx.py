"""SPDX licence expressions: read, and held against a list of allowed licences.

Parsing, known ids and normal spelling are those of ``packaging.licenses`` (PEP 639); what is added here is the question
whether an expression can be satisfied.
"""

from collections.abc import Collection

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from patchgym.errors import DataError


def canonical(expression: str) -> str:
    """The expression as SPDX spells it.

    Raises:
        DataError: it is no SPDX expression.
    """
    try:
        return str(canonicalize_license_expression(expression))
    except InvalidLicenseExpression as error:
        raise DataError(
            f"{expression[:100]!r} is no SPDX licence expression", why=str(error)[:200], mend="See spdx.org/licenses."
        ) from error


def licences_in(expression: str) -> frozenset[str]:
    """The licences that an expression names, without exceptions.

    Raises:
        DataError: it is no SPDX expression.
    """
    tokens = _tokens(expression)
    named = (token for token in tokens if token not in ("(", ")", "AND", "OR", "WITH"))
    after_with = {tokens[at + 1] for at, token in enumerate(tokens) if token == "WITH"}
    return frozenset(named) - after_with


def is_allowed(expression: str, allowed: Collection[str]) -> bool:
    """Whether somebody who accepts only ``allowed`` licences may use what is under ``expression``.

    One side of an ``OR`` suffices, both of an ``AND`` are needed. An exception (``WITH``) only permits more, so that
    the licence alone suffices. ``X-or-later`` and ``X+`` are allowed where ``X-only`` or ``X`` is: the user may choose.

    Raises:
        DataError: it is no SPDX expression.
    """
    reader = _Reader(_tokens(expression), frozenset(allowed))
    return reader.either()


class _Reader:
    """Recursive descent over an expression that is known to be well formed: OR binds least, then AND, then WITH."""

    def __init__(self, tokens: list[str], allowed: frozenset[str]) -> None:
        self._tokens, self._allowed, self._at = tokens, allowed, 0

    def either(self) -> bool:
        found = self._both()
        while self._next("OR"):
            other = self._both()
            found = found or other
        return found

    def _both(self) -> bool:
        found = self._one()
        while self._next("AND"):
            other = self._one()
            found = found and other
        return found

    def _one(self) -> bool:
        if self._next("("):
            found = self.either()
            self._next(")")
            return found
        name = self._take()
        if self._next("WITH"):
            return f"{name} WITH {self._take()}" in self._allowed or self._holds(name)
        return self._holds(name)

    def _holds(self, name: str) -> bool:
        stem = name.removesuffix("+").removesuffix("-or-later")
        later = stem != name
        return name in self._allowed or (
            later and not {stem, f"{stem}-only", f"{stem}-or-later"}.isdisjoint(self._allowed)
        )

    def _take(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1]

    def _next(self, token: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == token:
            self._at += 1
            return True
        return False


def _tokens(expression: str) -> list[str]:
    return canonical(expression).replace("(", " ( ").replace(")", " ) ").split()
