"""Tasks from a package on an index, without pins: its releases, and what each of them mended.

Only sdists are fetched, and they are only read. The SHA-256 that the index told, or that the file turned out to have,
is in ``pins``, so that the same can be had again.
"""

from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from patchgym.content import ObjectStore, Pin
from patchgym.content.downloads import IndexFile, download, list_files
from patchgym.errors import DataError, UsageError
from patchgym.tasks.sources.candidates import Candidate, change_between, pair_candidate
from patchgym.tasks.sources.changes import ChangeLimits, check_change
from patchgym.tasks.sources.described import described
from patchgym.tasks.sources.discover import discover
from patchgym.tasks.sources.files import Files
from patchgym.tasks.sources.project import Revision
from patchgym.tasks.sources.refusals import Refusal, Refused
from patchgym.tasks.sources.sdists import read_sdist
from patchgym.tasks.sources.versions import with_version_file

_ARCHIVES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


class ReleaseSource:
    """Candidates from the releases of one package: each is what a release mended of the one before.

    ``requirement`` is ``name`` (its last ``most`` pairs of releases), ``name==version`` (that release and the one
    before it) or ``name==old..new`` (every release between the two). Pre-releases and withdrawn ones are passed over.
    ``refused`` counts releases and pairs that made no candidate; ``pins`` are the sdists that were read.
    """

    def __init__(
        self,
        requirement: str,
        *,
        most: int = 10,
        limits: ChangeLimits | None = None,
        listing: Callable[[str], tuple[IndexFile, ...]] = list_files,
        fetch: Callable[[IndexFile], Path] = download,
    ) -> None:
        name, _, self._wanted = requirement.partition("==")
        self.label = canonicalize_name(name.strip())
        self.refused: Counter[Refusal] = Counter()
        self.pins: list[Pin] = []
        self._most, self._limits = most, limits or ChangeLimits()
        self._listing, self._fetch = listing, fetch

    def releases(self) -> list[IndexFile]:
        """The sdists that ``requirement`` means, oldest first; with one before the first, where there is one.

        Raises:
            Refused: it has no release with a source distribution.
            UsageError: there is no such project or release.
            OfflineError, PrerequisiteError: see ``patchgym.content.downloads.list_files``.
        """
        known: dict[Version, IndexFile] = {}
        others: Counter[Refusal] = Counter()
        for file in self._listing(self.label):
            try:
                version = Version(file.version)
            except InvalidVersion:
                continue
            if file.yanked:
                others[Refusal.WITHDRAWN] += file.kind == "sdist"
            elif not version.is_prerelease and file.filename.endswith(_ARCHIVES):
                known.setdefault(version, file)
        self.refused += others
        ordered = sorted(known)
        if not ordered:
            raise Refused(Refusal.NO_SDIST, self.label)
        first, last = self._range(ordered)
        start = ordered.index(first)
        chosen = ordered[max(0, start - 1) : ordered.index(last) + 1]
        return [known[version] for version in chosen]

    def revision(self, objects: ObjectStore) -> Revision:
        """The newest release that ``requirement`` means, to plant bugs in.

        Raises:
            Refused: it is no code base with tests, or has no source distribution.
            UsageError, OfflineError, PrerequisiteError, DataError: it cannot be had.
        """
        return self.load(self.releases()[-1], objects)

    def candidates(self, objects: ObjectStore) -> Generator[Candidate]:
        """Candidates, newest first. Blocking, and lazy.

        Raises:
            UsageError: there is no such project or release.
            OfflineError, PrerequisiteError, StorageError: a file cannot be had.
        """
        try:
            files = self.releases()
        except Refused as refused:
            self.refused[refused.reason] += 1
            return
        newest_first = (self._loaded(file, objects) for file in reversed(files))
        for newer, older in pairwise(newest_first):
            if newer is not None and older is not None:
                try:
                    yield self._pair(older, newer, objects)
                except Refused as refused:
                    self.refused[refused.reason] += 1

    def load(self, file: IndexFile, objects: ObjectStore) -> Revision:
        """One release as a revision, its environment still to be locked.

        Raises:
            Refused: it is no code base with tests.
            DataError: the archive is damaged, or not the one that the index told of.
            OfflineError, PrerequisiteError, StorageError: it cannot be had.
        """
        path = self._fetch(file)
        self.pins.append(Pin(name=self.label, version=file.version, kind="sdist", sha256=path.parent.name))
        sdist = read_sdist(path, objects)
        files = Files(objects, objects.entries(sdist.tree), sdist.beside)
        found = discover(files)
        return described(
            self.label,
            file.version,
            with_version_file(objects, sdist.tree, files, found.project, file.version),
            found,
            files,
            release=file.version,
            created_at=file.uploaded or sdist.newest,
        )

    def _loaded(self, file: IndexFile, objects: ObjectStore) -> Revision | None:
        try:
            return self.load(file, objects)
        except Refused as refused:
            self.refused[refused.reason] += 1
        except DataError:
            self.refused[Refusal.DAMAGED] += 1
        return None

    def _pair(self, older: Revision, newer: Revision, objects: ObjectStore) -> Candidate:
        """The pair in the environment that its tests need, which are the new ones. The metadata stay the old ones', so
        that a test of the version number tells nothing."""
        limits = self._limits
        change = change_between(objects, older.tree, newer.tree, newer.project, most_files=limits.files)
        check_change(objects, change, newer.project, limits)
        environment = older.environment.model_copy(update={"pythonpath": newer.environment.pythonpath})
        base = replace(
            older,
            project=newer.project,
            environment=environment,
            needs=newer.needs,
            created_at=newer.created_at,
        )
        return pair_candidate(base, newer, objects, change)

    def _range(self, ordered: list[Version]) -> tuple[Version, Version]:
        """The first and the last release whose mending is wanted."""
        if not self._wanted:
            return ordered[max(0, len(ordered) - self._most)], ordered[-1]
        old, between, new = self._wanted.partition("..")
        ends = []
        for text in (old, new if between else old):
            try:
                ends.append(Version(text))
            except InvalidVersion:
                raise UsageError(f"{text!r} is no version", mend="Write NAME==VERSION or NAME==OLD..NEW.") from None
            if ends[-1] not in ordered:
                near = ", ".join(str(version) for version in ordered[-8:])
                raise UsageError(f"{self.label} has no release {text} with a source distribution", why=f"Last: {near}.")
        if between:
            return ordered[min(ordered.index(ends[0]) + 1, len(ordered) - 1)], ends[1]
        return ends[0], ends[1]
