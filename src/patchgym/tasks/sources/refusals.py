"""Why a code base or a change in it makes no candidate: reasons that a funnel counts, never an error of the build."""

from enum import StrEnum


class Refusal(StrEnum):
    """The name under which what was refused is counted; ``meaning`` says it in a line."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> "Refusal":
        """A member of this name and meaning."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    # Of a code base.
    NOT_PYTHON = "not_python", "it has no Python file"
    NO_SOURCES = "no_sources", "no package or module that is neither tests, documents nor tools"
    NO_TESTS = "no_tests", "no test file"
    NO_SDIST = "no_sdist", "a release without a source distribution"
    DAMAGED = "damaged", "it cannot be read"
    UNSAFE_PATH = "unsafe_path", "a path that leaves its root or lies in a .git folder"
    TOO_LARGE = "too_large", "too many files or bytes"
    WITHDRAWN = "withdrawn", "the release was yanked"
    # Of a change.
    NO_PARENT = "no_parent", "nothing came before it"
    NO_SOURCE_CHANGE = "no_source_change", "it leaves the sources alone"
    NO_TEST_CHANGE = "no_test_change", "it leaves the tests alone"
    DOCS_ONLY = "docs_only", "it changes documents alone"
    RENAMES_ONLY = "renames_only", "its sources only moved"
    NO_CODE_CHANGE = "no_code_change", "only comments, docstrings, layout or line endings differ"
    TOO_BIG = "too_big", "more files or lines than a task should ask for"
    SUBMODULE = "submodule", "a submodule is among its sources"
    SYMLINK = "symlink", "a symbolic link is among its sources"
    BINARY = "binary", "a binary file is among its sources"
    NOT_UTF8 = "not_utf8", "a source that is not UTF-8"
    DOES_NOT_PARSE = "does_not_parse", "its sources are for another Python"
    # Of a logged session.
    BAD_ROW = "bad_row", "its line is no session"
    NO_REPOSITORY = "no_repository", "no clone of its repository, or no such commit in it"
    NO_CHANGE = "no_change", "it changed nothing"
    DOES_NOT_APPLY = "does_not_apply", "its patch does not fit its base"
    # Of a file of issues.
    BAD_ISSUE = "bad_issue", "its line is no issue"


class Refused(Exception):
    """A code base or a change makes no candidate; ``reason`` says why, ``detail`` of what."""

    def __init__(self, reason: Refusal, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else str(reason))
        self.reason = reason
        self.detail = detail
