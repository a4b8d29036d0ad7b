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
        return path.endswith(".py") and self.holds(path)

    def holds(self, path: str) -> bool:
        """Whether ``path`` lies among the sources and is no test: code, or data that the code comes with."""
        return path.startswith(self.sources) and not self.is_test(path)

    def is_test(self, path: str) -> bool:
        """Whether ``path`` belongs to the test suite."""
        return path.startswith(self.tests)


@dataclass(frozen=True)
class Needs:
    """What a code base asks for: requirements to import it (``runtime``) and to test it (``tests``), and the Python
    versions that it is for (a specifier). ``left_out`` are those that are no names with versions: paths, URLs, options.
    """

    runtime: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    requires_python: str | None = None
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Revision:
    """One release or commit of a project, its files in an object store under ``tree``. ``version`` is a release's
    version or a commit's hash; ``created_at`` when it was made, where that is known. With ``needs`` the environment is
    still to be locked (see ``patchgym.tasks.sources.provide``); without, ``environment`` has its lock."""

    name: str
    version: str
    project: Project
    tree: str
    environment: Environment
    created_at: datetime | None = None
    needs: Needs | None = None

    @property
    def label(self) -> str:
        """``name-version``, a commit's hash cut to twelve digits."""
        return f"{self.name}-{self.version[:12] if len(self.version) == 40 else self.version}"
