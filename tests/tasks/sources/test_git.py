"""Candidates from real git histories, and everything in them that makes none."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import pytest

from patchgym.content import Entry, ObjectStore, apply_patch, patched_paths
from patchgym.errors import DataError, UsageError
from patchgym.tasks.sources.candidates import Candidate
from patchgym.tasks.sources.changes import ChangeLimits
from patchgym.tasks.sources.git import GitSource, Issues, label_of, read_issues, store_tree
from patchgym.tasks.sources.refusals import Refusal, Refused
from patchgym.tasks.sources.repository import FileAt, Repository, checked_location
from tests.tasks.sources.codebase import FLAT, MENDED, MODULE, NEW_TEST, TEST, Repo

FIX: Mapping[str, str | bytes | None] = {"pkg/numbers.py": MENDED, "tests/test_numbers.py": NEW_TEST}


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """A repository whose first commit is a whole code base."""
    made = Repo(tmp_path / "work" / "project")
    made.commit("Begin", dict(FLAT))
    return made


def mined(
    repo: Repo,
    objects: ObjectStore,
    *,
    revision: str = "HEAD",
    since: datetime | None = None,
    first_parent: bool = True,
    issues: Issues | None = None,
    limits: ChangeLimits | None = None,
) -> tuple[list[Candidate], dict[str, int], int]:
    """Candidates, refusals and the number of commits of a repository, read as a URL would be."""
    source = GitSource(
        f"file://{repo.folder}",
        revision=revision,
        since=since,
        first_parent=first_parent,
        issues=issues,
        limits=limits,
        cache=repo.folder.parent.parent / "cache",
    )
    found = list(source.candidates(objects))
    return found, {str(reason): count for reason, count in source.refused.items()}, source.commits


def test_a_commit_that_changes_both_is_a_candidate(repo: Repo, objects: ObjectStore) -> None:
    parent = repo.git("rev-parse", "HEAD")
    fix = repo.commit("Halves are whole\n\nhalf(5) gave 2.5.", {**FIX, "README.md": "new"})
    (found,), refused, commits = mined(repo, objects)
    assert (found.source.kind, found.source.base_commit, found.source.fix_commit) == ("git", parent, fix)
    assert patched_paths(found.gold_patch) == ("pkg/numbers.py",)
    assert found.functions == {"pkg/numbers.py:half"}
    assert apply_patch(objects, found.broken, found.gold_patch) == found.healthy
    broken = objects.entries(found.broken)
    assert objects.get(broken["tests/test_numbers.py"].id).decode() == NEW_TEST
    assert objects.get(broken["pkg/numbers.py"].id).decode() == MODULE
    assert "README.md" not in broken
    assert (refused, commits) == ({"no_parent": 1}, 2)


def test_what_a_candidate_tells_of_its_origin(repo: Repo, objects: ObjectStore) -> None:
    repo.commit("Halves are whole\n\nhalf(5) gave 2.5.\n\nSigned-off-by: A <a@example.org>", FIX)
    (found,), _, _ = mined(repo, objects)
    assert found.statement == "Halves are whole\n\nhalf(5) gave 2.5."
    assert (found.source.statement, found.source.license, found.source.repo) == ("commit", "MIT", "project")
    assert found.source.created_at is not None
    assert found.source.created_at.timestamp() == 1_700_000_000 + 7200
    assert found.revision.environment.distribution is not None
    assert found.revision.environment.distribution.name == "pkg"
    assert found.revision.needs is not None
    assert found.revision.needs.requires_python == ">=3.8"


def branched(repo: Repo, message: str) -> None:
    """A fix made in two commits on a branch and merged."""
    repo.git("checkout", "--quiet", "-b", "topic")
    repo.commit("A test first", {"tests/test_numbers.py": NEW_TEST})
    repo.commit("Then the fix of #12", {"pkg/numbers.py": MENDED})
    repo.git("checkout", "--quiet", "main")
    repo.commit("Meanwhile", {"README.md": "x"})
    repo.git("merge", "--quiet", "--no-ff", "topic", "-m", message)


def test_a_merge_counts_as_one_change(repo: Repo, objects: ObjectStore) -> None:
    branched(repo, "Merge pull request #3 from a/topic\n\nWhole halves")
    (found,), refused, _ = mined(repo, objects)
    assert found.source.change is not None
    assert found.source.change.startswith("merge ")
    assert found.statement == "Whole halves"
    assert refused == {"docs_only": 1, "no_parent": 1}


def test_a_merge_that_says_nothing_says_what_its_commits_say(repo: Repo, objects: ObjectStore) -> None:
    branched(repo, "Merge branch 'topic'")
    (found,), _, _ = mined(repo, objects)
    assert found.statement == "A test first\n\nThen the fix of #12"


def test_without_first_parent_the_merged_commits_count_too(repo: Repo, objects: ObjectStore) -> None:
    repo.git("checkout", "--quiet", "-b", "topic")
    repo.commit("Fix", FIX)
    repo.git("checkout", "--quiet", "main")
    repo.git("merge", "--quiet", "--no-ff", "topic", "-m", "Merge branch 'topic'")
    assert len(mined(repo, objects)[0]) == 1
    assert len(mined(repo, objects, first_parent=False)[0]) == 2


def test_the_issue_that_a_commit_closes_is_its_statement(repo: Repo, objects: ObjectStore, tmp_path: Path) -> None:
    repo.commit("Whole halves, see #7\n\nFixes #12", FIX)
    lines = [{"number": 7, "title": "Other"}, {"number": 12, "title": "half is wrong", "body": "It gives 2.5."}]
    path = tmp_path / "issues.jsonl"
    path.write_text("\n".join([*map(json.dumps, lines), "{broken", '["list"]', '{"title": "no number"}', ""]))
    issues = read_issues(path)
    assert (len(issues.texts), issues.refused) == (2, 3)
    (found,), _, _ = mined(repo, objects, issues=issues)
    assert (found.statement, found.source.statement) == ("half is wrong\n\nIt gives 2.5.", "issue")
    (found,), _, _ = mined(repo, objects, issues=Issues({7: "Other"}))
    assert found.statement == "Other"


OTHERS: dict[str, tuple[Refusal, dict[str, str | bytes | None]]] = {
    "documents": (Refusal.DOCS_ONLY, {"docs/a.rst": "x", "README.md": "y"}),
    "no source": (Refusal.NO_SOURCE_CHANGE, {"tests/test_numbers.py": NEW_TEST}),
    "no test": (Refusal.NO_TEST_CHANGE, {"pkg/numbers.py": MENDED}),
    "a rename": (Refusal.RENAMES_ONLY, {"pkg/numbers.py": None, "pkg/n.py": MODULE, "tests/test_numbers.py": NEW_TEST}),
    "a comment": (Refusal.NO_CODE_CHANGE, {**FIX, "pkg/numbers.py": "# new\n" + MODULE}),
    "a docstring": (Refusal.NO_CODE_CHANGE, {**FIX, "pkg/numbers.py": '"""New."""\n' + MODULE}),
    "line endings": (Refusal.NO_CODE_CHANGE, {**FIX, "pkg/numbers.py": MODULE.replace("\n", "\r\n")}),
    "too many lines": (Refusal.TOO_BIG, {**FIX, "pkg/numbers.py": MODULE + "x = 1\n" * 500}),
    "too many files": (Refusal.TOO_BIG, {**FIX, **{f"pkg/m{n}.py": f"x = {n}\n" for n in range(9)}}),
    "too many paths": (Refusal.TOO_BIG, {**FIX, **{f"data/{n}": str(n) for n in range(300)}}),
    "binary data": (Refusal.BINARY, {**FIX, "pkg/table.bin": b"\0\1\2"}),
    "not UTF-8": (Refusal.NOT_UTF8, {**FIX, "pkg/numbers.py": MENDED.encode() + b'x = "\xe9"\n'}),
    "another Python": (Refusal.DOES_NOT_PARSE, {**FIX, "pkg/numbers.py": "print 'x'\n"}),
    "no tests any more": (Refusal.NO_TESTS, {"tests/test_numbers.py": None, "pkg/numbers.py": MENDED}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_makes_no_candidate_is_counted(repo: Repo, objects: ObjectStore, name: str) -> None:
    reason, change = OTHERS[name]
    repo.commit(name, change)
    found, refused, commits = mined(repo, objects)
    assert not found
    assert refused == {"no_parent": 1, str(reason): 1}
    assert commits == sum(refused.values())


def test_a_changed_submodule_or_link_is_refused(repo: Repo, objects: ObjectStore) -> None:
    head = repo.git("rev-parse", "HEAD")
    repo.write(FIX)
    repo.git("add", "--all")
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{head},vendor/other")
    repo.record("A submodule")
    repo.git("rm", "--quiet", "--cached", "vendor/other")
    repo.record("No submodule")
    (repo.folder / "pkg" / "link.py").symlink_to("numbers.py")
    repo.commit("A link", {"tests/test_numbers.py": TEST})
    assert mined(repo, objects)[1] == {
        "no_parent": 1,
        "submodule": 1,
        "no_source_change": 1,
        "symlink": 1,
    }


def test_files_that_are_no_python_are_part_of_the_fix(repo: Repo, objects: ObjectStore) -> None:
    repo.commit("Fix", {**FIX, "pkg/table.json": "{}"})
    (found,), _, _ = mined(repo, objects)
    assert patched_paths(found.gold_patch) == ("pkg/numbers.py", "pkg/table.json")


def test_sources_with_carriage_returns_stay_as_they_are(repo: Repo, objects: ObjectStore) -> None:
    repo.commit("Windows", {"pkg/numbers.py": MODULE.replace("\n", "\r\n")})
    repo.commit("Fix", {**FIX, "pkg/numbers.py": MENDED.replace("\n", "\r\n")})
    (found,), _, _ = mined(repo, objects)
    assert apply_patch(objects, found.broken, found.gold_patch) == found.healthy
    healthy = objects.entries(found.healthy)["pkg/numbers.py"].id
    assert objects.get(healthy).decode() == MENDED.replace("\n", "\r\n")


def test_a_moved_and_mended_source_is_removed_and_made(repo: Repo, objects: ObjectStore) -> None:
    tests = NEW_TEST.replace("import numbers", "import figures as numbers")
    repo.commit("Move", {"pkg/numbers.py": None, "pkg/figures.py": MENDED, "tests/test_numbers.py": tests})
    (found,), _, _ = mined(repo, objects)
    assert patched_paths(found.gold_patch) == ("pkg/figures.py", "pkg/numbers.py")
    assert apply_patch(objects, found.broken, found.gold_patch) == found.healthy


def test_links_that_leave_the_tree_and_submodules_are_left_out(repo: Repo, objects: ObjectStore) -> None:
    (repo.folder / "out").symlink_to("/etc/passwd")
    (repo.folder / "pkg" / "up").symlink_to("../../../x")
    (repo.folder / "pkg" / "inside").symlink_to("../README")
    repo.git("add", "--all")
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{repo.git('rev-parse', 'HEAD')},vendor/other")
    repo.record("Links")
    repo.write(FIX)
    repo.git("add", "pkg", "tests")
    repo.record("Fix")
    (found,), _, _ = mined(repo, objects)
    assert {"out", "pkg/up", "vendor/other"} & set(objects.entries(found.broken)) == set()
    assert "pkg/inside" in objects.entries(found.broken)


def test_a_version_from_tags_gets_its_file(repo: Repo, objects: ObjectStore) -> None:
    text = '[project]\nname = "pkg"\ndynamic = ["version"]\n[tool.setuptools_scm]\nwrite_to = "pkg/_version.py"\n'
    repo.commit("Tags", {"pyproject.toml": text, "pkg/__init__.py": "from ._version import version\n"})
    repo.git("tag", "v2.5.1")
    repo.commit("Fix", FIX)
    (found,), _, _ = mined(repo, objects)
    for tree in (found.broken, found.healthy):
        assert "'2.5.1'" in objects.get(objects.entries(tree)["pkg/_version.py"].id).decode()
    assert found.revision.environment.distribution is not None
    assert found.revision.environment.distribution.version == "2.5.1"


def test_the_same_history_gives_the_same_candidates(repo: Repo, objects: ObjectStore, tmp_path: Path) -> None:
    repo.commit("Fix", FIX)
    repo.commit("Back", {"pkg/numbers.py": MODULE, "tests/test_numbers.py": TEST})
    first = mined(repo, objects)[0]
    assert first == mined(repo, ObjectStore(tmp_path / "others"))[0]
    assert len(first) == 2


def test_since_and_revision_bound_the_history(repo: Repo, objects: ObjectStore) -> None:
    repo.commit("Fix", FIX)
    repo.git("tag", "then")
    repo.commit("Back", {"pkg/numbers.py": MODULE, "tests/test_numbers.py": TEST})
    everything = mined(repo, objects)[0]
    assert mined(repo, objects, revision="then")[0] == everything[1:]
    assert mined(repo, objects, since=everything[0].source.created_at)[0] == everything[:1]
    with pytest.raises(UsageError, match="no commit 'nothing'"):
        mined(repo, objects, revision="nothing")
    with pytest.raises(UsageError):
        mined(repo, objects, revision="--all")


def test_limits_are_the_callers(repo: Repo, objects: ObjectStore) -> None:
    repo.commit("Fix", FIX)
    assert mined(repo, objects, limits=ChangeLimits(files=1, lines=1))[1]["too_big"] == 1


def test_a_clone_is_brought_up_to_date(repo: Repo, objects: ObjectStore) -> None:
    assert not mined(repo, objects)[0]
    repo.commit("Fix", FIX)
    assert len(mined(repo, objects)[0]) == 1


def test_a_folder_and_its_git_folder_serve_too(repo: Repo, objects: ObjectStore, tmp_path: Path) -> None:
    repo.commit("Fix", FIX)
    for place in (str(repo.folder), str(repo.folder / ".git")):
        source = GitSource(place, cache=tmp_path / "cache")
        assert len(list(source.candidates(objects))) == 1
        assert source.label == "project"


@pytest.mark.parametrize(
    "location",
    [
        "--upload-pack=touch /tmp/x",
        "ext::sh -c touch% /tmp/x",
        "fd::17",
        "-u",
        "file://-x",
        "ssh://-oProxyCommand=x/y",
        "http+evil://x/y",
        "a\nb",
        "https://user@-x/y",
        "/nowhere/at/all",
        "git@-x:y",
    ],
)
def test_places_that_are_none_are_refused(location: str) -> None:
    with pytest.raises(UsageError):
        checked_location(location)


@pytest.mark.parametrize("location", ["https://example.org/a/b.git", "git@example.org:a/b.git", "file:///x/y"])
def test_urls_are_taken_as_they_are(location: str) -> None:
    assert checked_location(location) == location


@pytest.mark.parametrize(
    ("location", "label"),
    [
        ("https://user:secret@example.org/a/tool.git", "tool"),
        ("https://user:secret@example.org/", "example.org"),
        ("git@example.org:tool.git/", "tool"),
        (".", Path.cwd().name),
        ("..", Path.cwd().parent.name),
    ],
)
def test_a_label_is_the_last_part_of_a_place_and_holds_no_token(location: str, label: str) -> None:
    assert label_of(location) == GitSource(location).label == label


def test_what_is_no_repository_says_so(tmp_path: Path) -> None:
    (tmp_path / "x" / ".git").mkdir(parents=True)
    with pytest.raises(DataError, match="cannot clone"):
        Repository.clone(str(tmp_path / "x"), tmp_path / "cache")
    assert not list((tmp_path / "cache" / "repositories").iterdir())


def test_no_hook_and_no_variable_of_git_counts(repo: Repo, objects: ObjectStore, tmp_path: Path) -> None:
    """A hook in the repository and in a template, and variables that would lead git elsewhere."""
    repo.commit("Fix", FIX)
    hook = f"#!/bin/sh\ntouch {tmp_path}/ran\n"
    for folder in (repo.folder / ".git" / "hooks", tmp_path / "template" / "hooks"):
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("post-checkout", "reference-transaction", "pre-auto-gc"):
            (folder / name).write_text(hook)
            (folder / name).chmod(0o755)
    script = (
        "import sys; from pathlib import Path; from patchgym.content import ObjectStore\n"
        "from patchgym.tasks.sources.git import GitSource\n"
        "print(len(list(GitSource(sys.argv[1], cache=Path(sys.argv[2])).candidates(ObjectStore(Path(sys.argv[3]))))))"
    )
    (tmp_path / ".gitconfig").write_text(f"[init]\n\ttemplateDir = {tmp_path}/template\n")
    led = {"GIT_DIR": "/nowhere", "HOME": str(tmp_path), "GIT_OBJECT_DIRECTORY": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(repo.folder), str(tmp_path / "cache"), str(tmp_path / "o")],
        capture_output=True,
        text=True,
        env={**os.environ, **led},
    )
    assert done.stdout.strip() == "1", done.stderr
    assert not (tmp_path / "ran").exists()
    assert not list((tmp_path / "cache").rglob("hooks"))


@pytest.mark.parametrize("path", ["../x", "a/../../x", ".git/config", "a/.GIT/x", "link/x", "/x", "a/\udce9.py"])
def test_paths_that_no_tree_should_have(repo: Repo, objects: ObjectStore, path: str) -> None:
    blob = repo.git("rev-parse", "HEAD:pkg/numbers.py")
    tree = {"link": FileAt(0o120000, blob, 4), path: FileAt(0o100644, blob, 4)}
    with Repository(repo.folder / ".git").blobs() as blobs, pytest.raises(Refused) as caught:
        store_tree(tree, blobs, objects)
    assert caught.value.reason in (Refusal.UNSAFE_PATH, Refusal.NOT_UTF8)


def test_a_tree_that_is_too_large_is_refused_before_it_is_read(repo: Repo, objects: ObjectStore) -> None:
    tree = {f"f{n}": FileAt(0o100644, "0" * 40, 1) for n in range(5001)}
    with Repository(repo.folder / ".git").blobs() as blobs:
        for large in (tree, {"f": FileAt(0o100644, "0" * 40, 200 * 1024**2)}):
            with pytest.raises(Refused) as caught:
                store_tree(large, blobs, objects)
            assert caught.value.reason is Refusal.TOO_LARGE


def test_a_stored_tree_is_the_commits(repo: Repo, objects: ObjectStore) -> None:
    repo.write({"run.sh": "#!", "data.bin": bytes(range(256)), "caf\u00e9.txt": "\u00e9\r\n"})
    (repo.folder / "run.sh").chmod(0o755)
    commit = repo.commit("Files")
    repository = Repository(repo.folder / ".git")
    with repository.blobs() as blobs:
        stored = store_tree(repository.tree(commit), blobs, objects)
    assert stored == repo.git("rev-parse", "HEAD^{tree}")
    assert objects.entries(stored)["run.sh"] == Entry(0o100755, repo.git("rev-parse", "HEAD:run.sh"))


def test_a_missing_object_costs_one_commit(repo: Repo, objects: ObjectStore, tmp_path: Path) -> None:
    repo.commit("Fix", FIX)
    assert mined(repo, objects)[0]
    (clone,) = (tmp_path / "cache" / "repositories").iterdir()
    blob = repo.git("rev-parse", "HEAD:pkg/numbers.py")
    pack = next((clone / "bare" / "objects" / "pack").glob("*.pack"))
    data = pack.read_bytes()
    for old in (clone / "bare" / "objects" / "pack").iterdir():
        old.unlink()
    subprocess.run(["git", "--git-dir", str(clone / "bare"), "unpack-objects", "-q"], input=data, check=True)
    (clone / "bare" / "objects" / blob[:2] / blob[2:]).unlink()
    found, refused, _ = mined(repo, ObjectStore(tmp_path / "fresh"))
    assert not found
    assert refused == {"no_parent": 1, "damaged": 1}
