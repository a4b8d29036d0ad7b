"""Tokens, and whose they are."""

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path

from patchgym.errors import UsageError

VARIABLE = "PATCHGYM_TOKEN"
_ANYONE, _SHORTEST = "anyone", 16


class Keys:
    """Who a token makes one. Only digests are kept. Without any token everybody is the same client."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        """``tokens`` maps the names of clients to their tokens.

        Raises:
            UsageError: a token is short, is no plain ASCII, or two clients have the same.
        """
        for name, token in tokens.items():
            if len(token) < _SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
                raise UsageError(
                    f"The token of {name} is no good",
                    why=f"It has under {_SHORTEST} characters, or others than visible ASCII.",
                    mend="Make one: python -c 'import secrets; print(secrets.token_urlsafe(24))'",
                )
        if len(set(tokens.values())) < len(tokens):
            raise UsageError("Two clients have the same token", mend="Give each one of its own.")
        self._digests = {name: _digest(token) for name, token in tokens.items()}

    def __bool__(self) -> bool:
        """Whether a token is needed."""
        return bool(self._digests)

    def client(self, authorization: str | None) -> str | None:
        """The client that a header names; None where it names none. It takes as long whatever the token is like."""
        if not self._digests:
            return _ANYONE
        scheme, _, token = (authorization or "").partition(" ")
        given = _digest(token.strip())
        found = [name for name, digest in self._digests.items() if hmac.compare_digest(digest, given)]
        return found[0] if found and scheme.lower() == "bearer" else None


def read_keys(path: Path | None, variable: str | None) -> Keys:
    """The tokens of a file (a line for each client: its name and its token; ``#`` begins a comment), or the one of an
    environment variable, whose client is called ``default``.

    Raises:
        UsageError: there is no such file, a line is not of that form, or a token is no good.
    """
    if path is None:
        return Keys({"default": variable} if variable else {})
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The tokens in {path} cannot be read", why=str(error)) from error
    tokens: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or words[0] in tokens:
            raise UsageError(
                f"{path}, line {number} names no client of its own", mend="Write a name and a token: trainer-1 TOKEN"
            )
        tokens[words[0]] = words[1]
    if not tokens:
        raise UsageError(f"{path} holds no token", mend="Write a line for each client: trainer-1 TOKEN")
    return Keys(tokens)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
