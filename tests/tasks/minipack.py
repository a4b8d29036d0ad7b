"""A tiny package of our own as sdists: tested code, untested code, a flaky test, and a fix in its second release."""

import hashlib
import io
import tarfile
from pathlib import Path

from patchgym.content import Pin
from patchgym.tasks.sources.packages import Catalog, Package

SOURCE = '''\
"""Numbers on a scale."""


def clamp(value, low, high):
    """Value, kept between low and high."""
    if value < low:
        return low
    if value > high:
        return high
    return value


def percent(value, total):
    return value * 100 // total


def spread(values):
    return max(values) - min(values)


def nearest(values, wanted):
    return min(values, key=lambda value: abs(value - wanted))


def untested(value):
    return value + 1


def halves(value):
    left = value // 2
    return left, left
'''
FIXED = SOURCE.replace("return left, left", "return left, value - left")
TESTS = """\
import random

import pytest

from mini import scale


class TestClamp:
    def test_below(self):
        assert scale.clamp(-3, 0, 9) == 0

    def test_above(self):
        assert scale.clamp(12, 0, 9) == 9

    def test_edges(self):
        assert [scale.clamp(edge, 0, 9) for edge in (0, 9)] == [0, 9]

@pytest.mark.parametrize(("value", "share"), [(1, 25), (2, 50), (4, 100)])
def test_percent(value, share):
    assert scale.percent(value, 4) == share


def test_percent_of_more():
    assert scale.percent(3, 2) == 150


def test_spread():
    assert scale.spread([1, 4, 2]) == 3


def test_spread_of_one():
    assert scale.spread([5]) == 0


def test_spread_is_not_negative():
    assert scale.spread([-1, -9]) == 8


def test_flaky():
    assert random.getrandbits(20) == 0


def test_nearest():
    assert scale.nearest([1, 5, 9], 6) == 5


def test_nearest_below():
    assert scale.nearest([1, 5, 9], -4) == 1
"""
FIX_TESTS = """

def test_halves_of_odd():
    assert scale.halves(7) == (3, 4)


def test_halves_of_one():
    assert scale.halves(1) == (0, 1)


def test_halves_of_even():
    assert scale.halves(8) == (4, 4)
"""
NEW_TESTS = TESTS + FIX_TESTS


def write_sdist(path: Path, files: dict[str, str]) -> str:
    """Write an sdist with these files under a top folder and return its SHA-256."""
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"top/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def mini_catalog(folder: Path) -> Catalog:
    """``mini`` 1.0 and 1.1 (1.1 mends ``halves`` and tests it); ``same`` 1.1 mends nothing; ``twin``
    has its code twice."""
    contents = {
        "mini-1.0": {"mini/scale.py": SOURCE, "tests/test_scale.py": TESTS},
        "mini-1.1": {"mini/scale.py": FIXED, "tests/test_scale.py": NEW_TESTS},
        "same-1.0": {"mini/scale.py": SOURCE, "tests/test_scale.py": TESTS},
        "twin-1.0": {"mini/scale.py": FIXED, "mini/old_scale.py": FIXED, "tests/test_scale.py": NEW_TESTS},
        "same-1.1": {"mini/scale.py": SOURCE + "\n# no fix\n", "tests/test_scale.py": TESTS},
    }
    archives: dict[str, Path] = {}
    releases: dict[str, dict[str, str]] = {}
    for label, files in contents.items():
        name, version = label.split("-")
        path = folder / f"{label}.tar.gz"
        digest = write_sdist(path, {**files, "mini/__init__.py": "", f"{name}.egg-info/PKG-INFO": "Name: mini\n"})
        archives[digest] = path
        releases.setdefault(name, {})[version] = digest

    def fetch(pin: Pin) -> Path:
        return archives[pin.sha256]

    packages = {
        name: Package(license="MIT", sources=("mini/",), tests=("tests/",), lock="pytest", releases=known)
        for name, known in releases.items()
    }
    return Catalog(packages, fetch)
