"""What a gate says against a task."""

from patchgym.records import Record

_EVIDENCE_CHARS = 240


class Finding(Record):
    """One thing that is wrong with a task, or with a whole set where ``task`` is empty.

    ``check`` is the gate that found it and ``kind`` what it found; ``where`` names the place (a path, a field),
    ``evidence`` shows it on one line, and ``mend`` says what to do.
    """

    task: str
    check: str
    kind: str
    where: str
    evidence: str
    mend: str


def one_line(text: str, most: int = _EVIDENCE_CHARS) -> str:
    """Foreign text fit to be shown: on one line, without control characters, cut to ``most`` characters."""
    plain = "".join(char if char.isprintable() else " " for char in text[: 4 * most])
    plain = " ".join(plain.split())
    return plain if len(plain) <= most else plain[: most - 3].rstrip() + "..."
