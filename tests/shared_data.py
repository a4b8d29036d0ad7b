"""Real samples that lie beside the checkout, where they are at hand."""

from pathlib import Path

import pytest


def shared_data(name: str) -> Path:
    """A folder of ``shared/data``; the test is skipped, with the reason, where it is absent."""
    for parent in Path(__file__).resolve().parents:
        found = parent / "shared" / "data" / name
        if found.is_dir():
            return found
    pytest.skip(f"SKIPPED LOUDLY: there is no shared/data/{name} beside this checkout, so real samples are not read")
