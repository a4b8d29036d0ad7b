"""Why a code base or a change in it makes no candidate: reasons that a funnel counts, never an error of the build."""

from enum import StrEnum


class Refusal(StrEnum):
    """The name under which what was refused is counted.

    Of a code base: ``not_python``: it has no Python file. ``no_sources``: no package or module that is neither tests,
    documents nor tools. ``no_tests``: no test file. ``no_sdist``: a release without a source distribution.
    ``damaged``: it cannot be read. ``unsafe_path``: a path that leaves its root or lies in a ``.git`` folder.
    ``too_large``: too many files or bytes. ``withdrawn``: the release was yanked.

    Of a change: ``no_parent``: nothing came before it. ``no_source_change``, ``no_test_change``: it leaves one of the
    two alone. ``docs_only``: it changes neither, but documents. ``renames_only``: its sources only moved.
    ``no_code_change``: they differ in comments, docstrings, layout or line endings alone. ``too_big``: more files or
    lines than a task should ask for. ``submodule``, ``symlink``, ``binary``, ``not_utf8``: among its sources are such
    things. ``does_not_parse``: its sources are for another Python.

    Of a logged session: ``bad_row``: its line is no session. ``no_repository``: there is no clone, or no such commit in
    it. ``no_change``: it changed nothing. ``does_not_apply``: its patch does not fit its base.

    Of a file of issues: ``bad_issue``: its line is no issue.
    """

    NOT_PYTHON = "not_python"
    NO_SOURCES = "no_sources"
    NO_TESTS = "no_tests"
    NO_SDIST = "no_sdist"
    DAMAGED = "damaged"
    UNSAFE_PATH = "unsafe_path"
    TOO_LARGE = "too_large"
    WITHDRAWN = "withdrawn"
    NO_PARENT = "no_parent"
    NO_SOURCE_CHANGE = "no_source_change"
    NO_TEST_CHANGE = "no_test_change"
    DOCS_ONLY = "docs_only"
    RENAMES_ONLY = "renames_only"
    NO_CODE_CHANGE = "no_code_change"
    TOO_BIG = "too_big"
    SUBMODULE = "submodule"
    SYMLINK = "symlink"
    BINARY = "binary"
    NOT_UTF8 = "not_utf8"
    DOES_NOT_PARSE = "does_not_parse"
    BAD_ROW = "bad_row"
    NO_REPOSITORY = "no_repository"
    NO_CHANGE = "no_change"
    DOES_NOT_APPLY = "does_not_apply"
    BAD_ISSUE = "bad_issue"


class Refused(Exception):
    """A code base or a change makes no candidate; ``reason`` says why, ``detail`` of what."""

    def __init__(self, reason: Refusal, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else str(reason))
        self.reason = reason
        self.detail = detail
