"""The packages that tasks are made from (``packages.toml``), and their releases as trees."""

import difflib
import sys
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

from patchgym.config import Settings, validated
from patchgym.content import Entry, ObjectStore, Pin, fetch
from patchgym.errors import UsageError
from patchgym.records import Distribution, Environment
from patchgym.tasks.sdists import read_sdist


class Package(Settings):
    """What has to be known of a package to make tasks of it; ``packages.toml`` explains the keys."""

    license: str
    sources: tuple[str, ...]
    tests: tuple[str, ...]
    pythonpath: tuple[str, ...] = ("",)
    lock: str
    releases: dict[str, str]

    def is_source(self, path: str) -> bool:
        """Whether ``path`` is Python code in which a bug may be planted."""
        return path.endswith(".py") and path.startswith(self.sources) and not self.is_test(path)

    def is_test(self, path: str) -> bool:
        """Whether ``path`` belongs to the test suite."""
        return path.startswith(self.tests)


@dataclass(frozen=True)
class Release:
    """One release of a package, its files in an object store under ``tree``."""

    name: str
    version: str
    package: Package
    tree: str
    environment: Environment

    @property
    def label(self) -> str:
        """``name-version``."""
        return f"{self.name}-{self.version}"


@lru_cache(maxsize=1)
def known_packages() -> dict[str, Package]:
    """Every package of ``packages.toml``, by name."""
    data = tomllib.loads(_data_file("packages.toml"))
    return {name: validated(Package, entry, f"packages.toml [{name}]") for name, entry in data.items()}


def pin_of(requirement: str) -> Pin:
    """The pinned sdist of ``name==version``.

    Raises:
        UsageError: the package or the release is not in ``packages.toml``, or ``requirement`` is not of that form.
    """
    name, equals, version = requirement.partition("==")
    packages = known_packages()
    if not equals or name not in packages:
        near = difflib.get_close_matches(name, packages, n=1)
        raise UsageError(
            f"There is no pinned release {requirement!r}",
            why=f"Packages: {', '.join(packages)}.",
            mend=f"Did you mean {near[0]}=={next(iter(packages[near[0]].releases))}?" if near else "Use name==version.",
        )
    releases = packages[name].releases
    if version not in releases:
        raise UsageError(f"There is no pinned release {requirement!r}", mend=f"Use one of: {', '.join(releases)}.")
    return Pin(name=name, version=version, kind="sdist", sha256=releases[version])


def load_release(requirement: str, objects: ObjectStore, cache: Path | None = None) -> Release:
    """Fetch the pinned sdist of ``name==version`` (or take it from the cache) and store its files. Blocking.

    The environment is locked for the running interpreter's version, which every lock in ``locks/`` fits.

    Raises:
        UsageError: no such pinned release.
        OfflineError: it is neither cached nor within reach.
        DataError: the archive is damaged.
    """
    pin = pin_of(requirement)
    package = known_packages()[pin.name]
    tree, entry_points = read_sdist(fetch(pin, cache), objects)
    environment = Environment(
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        lock=_data_file(f"locks/{package.lock}.txt"),
        distribution=Distribution(name=pin.name, version=pin.version, entry_points=entry_points),
        pythonpath=package.pythonpath,
    )
    return Release(name=pin.name, version=pin.version, package=package, tree=tree, environment=environment)


def with_tests_of(objects: ObjectStore, tree: str, tests: str, package: Package) -> str:
    """``tree`` with its test suite replaced by that of the tree ``tests``."""
    changes: dict[str, Entry | None] = {path: None for path in objects.entries(tree) if package.is_test(path)}
    changes.update({path: entry for path, entry in objects.entries(tests).items() if package.is_test(path)})
    return objects.update_tree(tree, changes)


def _data_file(name: str) -> str:
    return resources.files("patchgym.tasks").joinpath(name).read_text(encoding="utf-8")
