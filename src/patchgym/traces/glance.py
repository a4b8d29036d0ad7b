"""Reading without keeping: what an import would make of something, with nothing stored."""

from collections import Counter

from patchgym.records import Attachment
from patchgym.traces.intake import Intake


class Glance(Intake):
    """An intake that has no object store: of attachments it keeps their size, not their bytes."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.broken: Counter[str] = Counter()

    def attachment(self, media_type: str, data: bytes | None, size: int | None = None) -> Attachment:
        """An attachment without its bytes."""
        return Attachment(media_type=media_type, size=size if data is None else len(data))
