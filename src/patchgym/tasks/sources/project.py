"""A code base that tasks are made from, and one revision of it as a tree."""

from dataclasses import dataclass
from datetime import datetime

from patchgym.config import Settings
from patchgym.records import Environment


class Project(Settings):
    """What has to be known of a code base to make tasks of it.

    ``license`` is an SPDX expression; ``sources`` are the folders or files that a fix may change and a bug may be
    planted in, ``tests`` those of the test suite; ``pythonpath`` the folders that imports start from ("" is the root).
    """

    license: str
    sources: tuple[str, ...]
    tests: tuple[str, ...]
    pythonpath: tuple[str, ...] = ("",)

    def is_source(self, path: str) -> bool:
        """Whether ``path`` is Python code in which a bug may be planted."""
        return path.endswith(".py") and path.startswith(self.sources) and not self.is_test(path)

    def is_test(self, path: str) -> bool:
        """Whether ``path`` belongs to the test suite."""
        return path.startswith(self.tests)


@dataclass(frozen=True)
class Revision:
    """One release or commit of a project, its files in an object store under ``tree``. ``version`` is a release's
    version or a commit's hash; ``created_at`` when it was made, where that is known."""

    name: str
    version: str
    project: Project
    tree: str
    environment: Environment
    created_at: datetime | None = None

    @property
    def label(self) -> str:
        """``name-version``, a commit's hash cut to twelve digits."""
        return f"{self.name}-{self.version[:12] if len(self.version) == 40 else self.version}"
