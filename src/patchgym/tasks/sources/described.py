"""A revision out of what was discovered of a code base; its environment is still to be locked."""

from datetime import datetime

from patchgym.records import Distribution, Environment
from patchgym.tasks.sources.discover import Discovered
from patchgym.tasks.sources.files import Files
from patchgym.tasks.sources.project import Revision
from patchgym.tasks.sources.requirements import needs_of


def described(
    label: str,
    version: str,
    tree: str,
    found: Discovered,
    files: Files,
    *,
    release: str,
    created_at: datetime | None,
) -> Revision:
    """The revision ``version`` (a release or a commit) of the code base ``label``, its files under ``tree``. ``files``
    are those that ``found`` was discovered in; ``release`` is the version that its metadata tell."""
    metadata, project = found.metadata, found.project
    return Revision(
        name=label,
        version=version,
        project=project,
        tree=tree,
        environment=Environment(
            distribution=Distribution(name=metadata.name or label, version=release, entry_points=metadata.entry_points),
            pythonpath=project.pythonpath,
        ),
        created_at=created_at,
        needs=needs_of(files, metadata),
    )
