"""Takes secrets and personal data out of texts, and leaves markers that tell them apart."""

import hashlib
import secrets
from collections import Counter
from collections.abc import Sequence

from patchgym.redact.known import Known
from patchgym.redact.scan import MARKER, Found, find

_REACH = 20_000  # no pattern sees farther than this from its anchor


class Redactor:
    """Redacts the texts of one run.

    A secret becomes ``<redacted:KIND:N>``: the same text always the same one, another text another number, counted from
    1 in the order in which they are met. The marker says nothing else of what it stands for, and no list of the secrets
    is kept: they are remembered by a keyed hash whose key is thrown away with the redactor.

    Redacting what is redacted changes nothing.
    """

    def __init__(self, known: Known | None = None) -> None:
        self._known = known
        self._key = secrets.token_bytes(32)
        self._numbers: dict[tuple[str, bytes], int] = {}
        self._next: Counter[str] = Counter()

    def text(self, text: str, counts: Counter[str]) -> str:
        """A text without secrets; ``counts`` grows by what was taken out, by its kind."""
        data = text.encode("utf-8", "surrogatepass")
        clean = self.data(data, counts)
        return text if clean is data else clean.decode("utf-8", "surrogatepass")

    def named(self, name: str, text: str, counts: Counter[str]) -> str:
        """The same for the value of a name, which may tell what the value is: ``api_key``, say."""
        lead, end = f'"{name}": "', '"'
        whole = f"{lead}{text}{end}"
        clean = self.text(whole, counts)
        if clean is whole:
            return text
        if clean.startswith(lead) and clean.endswith(end):
            return clean[len(lead) : -len(end)]
        return self.text(text, counts)

    def data(self, data: bytes, counts: Counter[str], spared: frozenset[bytes] = frozenset()) -> bytes:
        """The same for bytes: the very same object where nothing was found. They need not be valid UTF-8. What is
        ``spared`` stays."""
        windows = None
        self._heed_markers(data)
        while found := [one for one in find(data, self._known, windows) if one.same not in spared]:
            data, windows = self._replaced(data, found, counts)
        return data

    def secrets_in(self, data: bytes) -> frozenset[bytes]:
        """What would be taken out of a text, to be spared in another one."""
        return frozenset(one.same for one in find(data, self._known))

    def _replaced(
        self, data: bytes, found: Sequence[Found], counts: Counter[str]
    ) -> tuple[bytes, list[tuple[int, int]]]:
        """The text with markers, and the parts of it where taking something out may have uncovered something else."""
        parts, at, length = [], 0, 0
        windows: list[tuple[int, int]] = []
        for one in found:
            marker = self._marker(one)
            parts += [data[at : one.start], marker]
            length += one.start - at
            low, high = max(0, length - _REACH), length + len(marker) + _REACH
            if windows and low <= windows[-1][1]:
                windows[-1] = (windows[-1][0], high)
            else:
                windows.append((low, high))
            length += len(marker)
            at = one.end
            counts[one.kind] += 1
        return b"".join([*parts, data[at:]]), windows

    def _marker(self, one: Found) -> bytes:
        key = (one.kind, hashlib.blake2b(one.same, key=self._key, digest_size=16).digest())
        number = self._numbers.get(key)
        if number is None:
            self._next[one.kind] += 1
            number = self._numbers[key] = self._next[one.kind]
        return f"<redacted:{one.kind}:{number}>".encode()

    def _heed_markers(self, data: bytes) -> None:
        """Numbers that stand in the text already, from an earlier redaction, are not given to other secrets."""
        if b"<redacted:" in data:
            for kind, number in MARKER.findall(data):
                name = kind.decode()
                self._next[name] = max(self._next[name], int(number))
