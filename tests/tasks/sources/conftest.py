"""What the tests of the sources share."""

from pathlib import Path

import pytest

from patchgym.content import ObjectStore


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "objects")
