"""What an address asks for: filters, order and page, checked. All of it stays in the address, so that links hold."""

from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlencode

from patchgym.errors import UsageError

_MOST_TEXT = 400


class Query:
    """The parameters of an address."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def text(self, name: str) -> str:
        """A value; empty where it is not said."""
        return self._values.get(name, "")[:_MOST_TEXT]

    def needed(self, name: str) -> str:
        """A value that must be said.

        Raises:
            UsageError: it is not.
        """
        if not self._values.get(name):
            raise UsageError(f"The address lacks {name!r}", mend="Start from the list of attempts.")
        return self._values[name]

    def number(self, name: str, default: int, low: int = 0, high: int = 10**9) -> int:
        """A whole number within bounds.

        Raises:
            UsageError: it is none.
        """
        found = self.optional(name)
        if found is None:
            return default
        if not low <= found <= high:
            raise UsageError(f"{name}={found} is out of range", why=f"It is from {low} to {high}.")
        return found

    def optional(self, name: str) -> int | None:
        """A whole number; None where it is not said.

        Raises:
            UsageError: it is none.
        """
        value = self._values.get(name, "")
        if not value:
            return None
        if not value.lstrip("-").isdecimal() or len(value) > 12:
            raise UsageError(f"{name}={value[:40]} is no whole number")
        return int(value)

    def real(self, name: str) -> float | None:
        """A number; None where it is not said.

        Raises:
            UsageError: it is none.
        """
        value = self._values.get(name, "")
        try:
            found = float(value) if value else None
        except ValueError:
            raise UsageError(f"{name}={value[:40]} is no number") from None
        if found is not None and not abs(found) < 1e12:
            raise UsageError(f"{name}={value[:40]} is no number to compare with")
        return found

    def choice(self, name: str, options: Sequence[str], default: str) -> str:
        """One of several values.

        Raises:
            UsageError: it is another.
        """
        value = self._values.get(name, "") or default
        if value not in options:
            raise UsageError(f"{name}={value[:40]} is not known", mend=f"It is one of {', '.join(options)}.")
        return value

    def with_(self, **changes: str | int | None) -> dict[str, str]:
        """The parameters with some changed; None removes one."""
        values = {name: value for name, value in self._values.items() if value}
        for name, value in changes.items():
            if value is None:
                values.pop(name, None)
            else:
                values[name] = str(value)
        return values


def address(root: str, run: str | None, page: str = "", values: Mapping[str, str | int | None] | None = None) -> str:
    """The address of a page of a run (or of all runs), in ASCII."""
    told = {name: value for name, value in (values or {}).items() if value is not None and value != ""}
    path = (
        f"{root}/run/{quote(run, safe='', errors='backslashreplace')}/{page}" if run is not None else f"{root}/{page}"
    )
    return f"{path}?{urlencode(told, errors='backslashreplace')}" if told else path
