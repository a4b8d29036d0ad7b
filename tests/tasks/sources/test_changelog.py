"""The entry of one version in a changelog, in the styles that projects use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.content import ObjectStore
from patchgym.tasks.sources.changelog import changelog_entry
from tests.tasks.sources.codebase import files_of

MARKDOWN = "# Changelog\n\n## [1.2.0] - 2024-01-01\n\n### Fixed\n\n- mend half\n\n## [1.1.0] - 2023\n\n- older\n"
RULED = "History\n=====\n\n1.2.0 (2024-01-01)\n-----\n\n- mend half\n\n1.1.0 (2023)\n-----\n\n- older\n"
NAMED = "Version 1.2.0\n-------------\n\nReleased 2024\n\n-   mend half\n\nVersion 1.1.0\n-------------\n\n- older\n"
BULLETS = "Read me\n\n- 1.2.0 mend half\n  of odd ones\n- 1.1.0 older\n"
PLAIN = "1.2.0\n- mend half\n1.1.0\n- older\n"
LATEST_LAST = "## 1.1.0\n\nolder\n\n## 1.2.0\n\nmend half\n"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("CHANGELOG.md", MARKDOWN),
        ("HISTORY.rst", RULED),
        ("docs/changes.rst", NAMED),
        ("README.rst", BULLETS),
        ("NEWS", PLAIN),
        ("CHANGES.txt", LATEST_LAST),
    ],
)
def test_styles(objects: ObjectStore, path: str, text: str) -> None:
    found = changelog_entry(files_of(objects, {path: text, "pkg/a.py": ""}), "1.2")
    assert "mend half" in found
    assert "older" not in found
    assert "1.2.0" not in found
    assert "---" not in found


def test_a_subheading_does_not_end_an_entry(objects: ObjectStore) -> None:
    found = changelog_entry(files_of(objects, {"CHANGELOG.md": MARKDOWN}), "1.2.0")
    assert found == "### Fixed\n\n- mend half"
    nested = "## 1.2.0\n\n### 1.0 callers\n\nmend half\n\n## 1.1.0\n"
    assert "mend half" in changelog_entry(files_of(objects, {"CHANGES.md": nested}), "1.2.0")


def test_the_changelog_comes_before_the_readme(objects: ObjectStore) -> None:
    files = files_of(objects, {"README.md": "## 1.2.0\n\nof the readme\n", "CHANGES.md": "## 1.2.0\n\nof the log\n"})
    assert changelog_entry(files, "1.2.0") == "of the log"


def test_a_version_that_is_not_there(objects: ObjectStore) -> None:
    files = files_of(objects, {"CHANGELOG.md": MARKDOWN})
    assert changelog_entry(files, "1.2.1") == changelog_entry(files, "not a version") == ""
    assert changelog_entry(files_of(objects, {"a.py": ""}), "1.2.0") == ""


def test_an_entry_is_bounded(objects: ObjectStore) -> None:
    files = files_of(objects, {"CHANGELOG.md": "## 1.0\n" + "words\n" * 5000})
    assert len(changelog_entry(files, "1.0")) == 6000


LINES = st.lists(st.sampled_from(["## 1.2", "1.2", "---", "- 1.2 x", "- y", "", "  z", "## 1.1", "* 1.3"]), max_size=12)


@given(lines=LINES)
def test_an_entry_is_made_of_lines_of_the_file(lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    objects = ObjectStore(tmp_path_factory.getbasetemp() / "shared")
    found = changelog_entry(files_of(objects, {"CHANGES": "\n".join(lines)}), "1.2")
    assert all(any(line.strip() in whole for whole in lines) for line in found.splitlines())
