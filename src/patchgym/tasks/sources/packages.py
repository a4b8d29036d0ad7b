"""The packages that tasks are made from (``packages.toml``), and their releases as trees."""

import difflib
import sys
import tomllib
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from functools import lru_cache
from importlib import resources
from pathlib import Path

from pydantic import Field

from patchgym.config import validated
from patchgym.content import Entry, ObjectStore, Pin, fetch
from patchgym.errors import UsageError
from patchgym.records import Distribution, Environment
from patchgym.tasks.sources.project import Project, Revision
from patchgym.tasks.sources.sdists import read_sdist
from patchgym.tasks.sources.services import services_of


class Package(Project):
    """A project on PyPI with pinned releases: ``releases`` maps versions to the SHA-256 of their sdists, ``dates`` to
    the days on which they came out, ``lock`` names what the tests need (a file in ``locks/``), ``services`` what runs
    beside them (``services.toml``), each with variables that the tests are told besides."""

    lock: str
    services: dict[str, dict[str, str]] = Field(default_factory=dict)
    releases: dict[str, str]
    dates: dict[str, date] = Field(default_factory=dict)


@lru_cache(maxsize=1)
def known_packages() -> dict[str, Package]:
    """Every package of ``packages.toml``, by name."""
    data = tomllib.loads(_data_file("packages.toml"))
    return {name: validated(Package, entry, f"packages.toml [{name}]") for name, entry in data.items()}


class Catalog:
    """Releases by requirement (``name==version``): of the pinned packages, fetched from PyPI, unless told otherwise."""

    def __init__(self, packages: Mapping[str, Package] | None = None, fetch: Callable[[Pin], Path] = fetch) -> None:
        self._packages = known_packages() if packages is None else packages
        self._fetch = fetch

    def pin(self, requirement: str) -> Pin:
        """The pinned sdist of a release.

        Raises:
            UsageError: there is no such package or release, or ``requirement`` is not of that form.
        """
        name, equals, version = requirement.partition("==")
        package = self._packages.get(name)
        if package is None or not equals:
            near = difflib.get_close_matches(name, self._packages, n=1)
            raise UsageError(
                f"There is no pinned release {requirement!r}",
                why=f"Packages: {', '.join(self._packages)}.",
                mend=f"Did you mean {near[0]}=={next(iter(self._packages[near[0]].releases))}?"
                if near
                else "Write name==version.",
            )
        if version not in package.releases:
            raise UsageError(
                f"There is no pinned release {requirement!r}", mend=f"Use one of: {', '.join(package.releases)}."
            )
        return Pin(name=name, version=version, kind="sdist", sha256=package.releases[version])

    def known(self, requirement: str) -> Pin | None:
        """The pinned sdist of a release; None where there is no such package or release."""
        name, _, version = requirement.partition("==")
        package = self._packages.get(name)
        return self.pin(requirement) if package is not None and version in package.releases else None

    def fetch(self, requirement: str) -> Path:
        """The release's sdist, from the cache where it is there. Blocking; safe to run in threads.

        Raises:
            UsageError: no such pinned release.
            OfflineError: it is neither cached nor within reach.
        """
        return self._fetch(self.pin(requirement))

    def load(self, requirement: str, objects: ObjectStore) -> Revision:
        """Fetch a release and store its files. Its environment is locked for the running interpreter's version, which
        every lock in ``locks/`` fits.

        Raises:
            UsageError: no such pinned release.
            OfflineError: it is neither cached nor within reach.
            DataError: the archive is damaged.
        """
        pin = self.pin(requirement)
        package = self._packages[pin.name]
        sdist = read_sdist(self._fetch(pin), objects)
        entry_points = sdist.beside.get("entry_points.txt", "")
        environment = Environment(
            python=f"{sys.version_info.major}.{sys.version_info.minor}",
            lock=_data_file(f"locks/{package.lock}.txt"),
            distribution=Distribution(name=pin.name, version=pin.version, entry_points=entry_points),
            pythonpath=package.pythonpath,
            services=services_of(package.services),
        )
        day = package.dates.get(pin.version)
        return Revision(
            name=pin.name,
            version=pin.version,
            project=package,
            tree=sdist.tree,
            environment=environment,
            created_at=datetime.combine(day, time(), UTC) if day is not None else None,
        )


def with_tests_of(objects: ObjectStore, tree: str, tests: str, project: Project) -> str:
    """``tree`` with its test suite replaced by that of the tree ``tests``."""
    changes: dict[str, Entry | None] = {path: None for path in objects.entries(tree) if project.is_test(path)}
    changes.update({path: entry for path, entry in objects.entries(tests).items() if project.is_test(path)})
    return objects.update_tree(tree, changes)


def _data_file(name: str) -> str:
    return resources.files("patchgym.tasks.sources").joinpath(name).read_text(encoding="utf-8")
