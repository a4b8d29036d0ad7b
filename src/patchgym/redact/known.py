"""Secrets that somebody names: found as they are, and as base64, URLs and JSON write them."""

import base64
import json
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

from patchgym.errors import UsageError

_SHORTEST = 4
_SHORTEST_ENCODED = 8
_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
# Of base64 that begins so many bytes before a secret, so many characters depend on what stands there.
_TAINTED = (0, 2, 3)


class Known:
    """Values to look for. In base64 they are found wherever they stand in what was encoded."""

    def __init__(self, values: Iterable[str | bytes]) -> None:
        """Take in the values.

        Raises:
            UsageError: one is too short to be told from other text.
        """
        self._forms: dict[bytes, tuple[bytes, bool]] = {}
        for value in values:
            raw = value.encode() if isinstance(value, str) else value
            if len(raw) < _SHORTEST:
                raise UsageError(
                    "A known secret is too short to be looked for",
                    why=f"It has {len(raw)} bytes; shorter than {_SHORTEST} it would be found everywhere.",
                    mend="Leave it out, and blank lines too.",
                )
            for form, is_base64 in _forms(raw):
                self._forms.setdefault(form, (raw, is_base64))

    def find(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Where one of them stands, from where to where, and which."""
        for form, (value, is_base64) in self._forms.items():
            at = data.find(form)
            while at >= 0:
                end = at + len(form)
                low, high = at, end
                if is_base64:  # the characters at both ends hold a few bits of it as well
                    low -= at > 0 and data[at - 1] in _BASE64
                    high += end < len(data) and data[end] in _BASE64
                yield low, high, value
                at = data.find(form, end)


def _forms(raw: bytes) -> Iterator[tuple[bytes, bool]]:
    yield raw, False
    text = raw.decode("utf-8", "surrogateescape")
    for url in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield url.encode(), False
    for ascii_only in (False, True):
        escaped = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        for form in (escaped, json.dumps(escaped, ensure_ascii=ascii_only)[1:-1]):
            yield form.encode("utf-8", "surrogateescape"), False
    if len(raw) >= _SHORTEST_ENCODED:
        for shift, tainted in enumerate(_TAINTED):
            encoded = base64.b64encode(b"\0" * shift + raw)
            loose = (shift + len(raw)) % 3
            core = encoded[tainted : len(encoded) - (0, 3, 2)[loose]]
            yield core, True
            yield core.translate(bytes.maketrans(b"+/", b"-_")), True
