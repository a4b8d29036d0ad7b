"""What judges are told: what was found, and the lists of what only stands for something."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Words:
    """The lists of ``rules.toml`` that say what only stands for something."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        """Take the lists out of the parsed table."""
        placeholders, mail, hosts, home = (table[name] for name in ("placeholders", "mail", "hosts", "home"))
        self.parts = re.compile(b"|".join(re.escape(part.encode()) for part in placeholders["parts"]))
        self.words = _set(placeholders["words"])
        self.leads = tuple(lead.encode() for lead in placeholders["leads"])
        self.mail_accounts = _set(mail["accounts"])
        self.mail_domains = _set(mail["domains"])
        self.mail_tops = _set([*mail["tops"], *mail["files"]])
        self.hosts = _set(hosts["known"])
        self.plain_hosts = tuple(b"." + name.encode() for name in hosts["plain"])
        self.accounts = _set(home["accounts"])
        self.routes = _set(home["routes"])


class Hit(NamedTuple):
    """What was found: the text, where the run before the anchor begins, where the anchor does, what follows it, and the
    value that would be replaced."""

    data: bytes
    start: int
    anchor: int
    match: re.Match[bytes]
    value: bytes


Judge = Callable[[Hit, Words], bool]


def _set(names: list[str]) -> frozenset[bytes]:
    return frozenset(name.encode() for name in names)
