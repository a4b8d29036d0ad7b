"""Rows as people publish them, made from the small repository of ``tests.workshop``, and strategies for nasty ones."""

import json
import subprocess
import tempfile
from pathlib import Path

from hypothesis import strategies as st
from pydantic import JsonValue

from patchgym.content import Entry, ObjectStore, diff_trees
from tests.workshop import BUGGY, FAIL_TO_PASS, FIXED, PASS_TO_PASS, VISIBLE, WHOLE

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GOLD = """\
diff --git a/calc.py b/calc.py
--- a/calc.py
+++ b/calc.py
@@ -4,4 +4,4 @@ def clamp(value, low, high):
         return low
     if value > high:
-        return low
+        return high
     return value
"""
TEST_PATCH = """\
diff --git a/tests/test_calc.py b/tests/test_calc.py
--- a/tests/test_calc.py
+++ b/tests/test_calc.py
@@ -12,2 +12,6 @@ def test_above():
 def test_double():
     assert double(4) == 8
+
+
+def test_far_above():
+    assert clamp(1000, -3, 7) == 7
"""
REPO_FILES = {"calc.py": BUGGY, "tests/test_calc.py": VISIBLE, "README": "calc\n"}

_SCRATCH = tempfile.TemporaryDirectory(prefix="patchgym-formats-")

# Anything that a JSON text can hold: no half surrogates, but every line end and much else that breaks parsers.
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.sampled_from(
        ["", "\r\n", "a\r\nb", "no end", "\ufeffbom", "\u2028", "\x00", "\x7f", "'''", '"""', "é\n", "---\n"]
    ),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
TESTS = st.lists(TEXT, max_size=4)
IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+@=-]{0,30}", fullmatch=True)
LIST_FORMS: st.SearchStrategy[JsonValue] = st.one_of(
    TESTS.map(lambda found: [*found]),
    TESTS.map(json.dumps),
    TESTS.map(lambda found: json.dumps(found, ensure_ascii=False, separators=(",", ":"))),
    TESTS.map(lambda found: f" {json.dumps(found, indent=2)}\n"),
)
TIMES = st.one_of(TEXT, st.none(), st.datetimes().map(str), st.datetimes().map(lambda at: f"{at.isoformat()}Z"))


@st.composite
def patches(draw: st.DrawFn) -> str:
    """A patch between two trees of nasty files; sometimes none, sometimes without its last line end."""
    lines = st.lists(
        st.sampled_from(["a\n", "b\n", "\n", "c\r\n", "é\n", "-- x\n", "++ y\n", "@@ -1 +1 @@\n"]), max_size=8
    )
    ends = st.sampled_from(["", "last", "last\r"])
    names = st.sampled_from(["a.py", "d/b.py", "sp ace.txt", "ü.txt"])
    store = scratch_store()
    sides: list[dict[str, Entry]] = [{}, {}]
    for name in draw(st.lists(names, unique=True, max_size=3)):
        for side in sides:
            if draw(st.booleans()):
                text = "".join(draw(lines)) + draw(ends)
                side[name] = Entry(draw(st.sampled_from([0o100644, 0o100755])), store.put(text.encode()))
    return diff_trees(store, store.write_tree(sides[0]), store.write_tree(sides[1]))


@st.composite
def swebench_rows(draw: st.DrawFn) -> dict[str, JsonValue]:
    """Rows of SWE-bench, with other people's columns beside and any order of them."""
    row: dict[str, JsonValue] = {
        "repo": draw(TEXT),
        "instance_id": draw(IDS),
        "base_commit": draw(TEXT),
        "patch": draw(patches()),
        "problem_statement": draw(TEXT),
        "FAIL_TO_PASS": draw(LIST_FORMS),
        "PASS_TO_PASS": draw(LIST_FORMS),
    }
    optional = {"test_patch": TEXT, "hints_text": TEXT, "created_at": TIMES, "version": TEXT | st.none(), "image": TEXT}
    return _with_more(draw, row, optional)


@st.composite
def swesmith_rows(draw: st.DrawFn) -> dict[str, JsonValue]:
    """Rows of SWE-smith."""
    row: dict[str, JsonValue] = {
        "instance_id": draw(IDS),
        "repo": draw(st.sampled_from(["swesmith/owner__name.0123abcd", "plain"]) | TEXT),
        "patch": draw(patches()),
        "FAIL_TO_PASS": draw(LIST_FORMS),
        "PASS_TO_PASS": draw(LIST_FORMS),
    }
    return _with_more(draw, row, {"image_name": TEXT, "problem_statement": TEXT})


@st.composite
def r2egym_rows(draw: st.DrawFn) -> dict[str, JsonValue]:
    """Rows of R2E-Gym."""
    row = r2egym_row()
    row["repo_name"] = draw(st.from_regex(r"[a-z]{1,8}", fullmatch=True))
    row["problem_statement"] = draw(TEXT)
    expected = draw(st.dictionaries(TEXT, st.sampled_from(["PASSED", "FAILED", "ERROR"]), max_size=4))
    row["expected_output_json"] = json.dumps(expected, indent=draw(st.sampled_from([None, 2])))
    return _with_more(draw, row, {"prompt": TEXT, "docker_image": TEXT, "instance_id": IDS})


def scratch_store() -> ObjectStore:
    """A store that is gone with this process."""
    return ObjectStore(Path(_SCRATCH.name))


def swebench_row(**changes: JsonValue) -> dict[str, JsonValue]:
    """A row of SWE-bench that is right, but for ``changes``."""
    return {
        "repo": "owner/calc",
        "instance_id": "owner__calc-1",
        "base_commit": COMMIT,
        "patch": GOLD,
        "test_patch": TEST_PATCH,
        "problem_statement": "clamp(10, 0, 9) should be 9.",
        "hints_text": "Look at the second bound.",
        "created_at": "2024-02-29T12:00:00Z",
        "version": "1.0",
        "FAIL_TO_PASS": json.dumps(FAIL_TO_PASS),
        "PASS_TO_PASS": json.dumps(PASS_TO_PASS),
        "environment_setup_commit": COMMIT,
        **changes,
    }


def r2egym_row(**changes: JsonValue) -> dict[str, JsonValue]:
    """A row of R2E-Gym whose log says what failed before."""
    lines: list[JsonValue] = [
        {"content": "    if value > high:", "type": "context"},
        {"content": "        return low", "type": "deleted"},
        {"content": "        return high", "type": "added"},
        {"content": "    return value", "type": "context"},
    ]
    span: JsonValue = {"start": 5, "length": 3}
    hunk: JsonValue = {
        "descriptor": {"old_range": span, "new_range": span, "section": "def clamp(value, low, high):"},
        "line_group": {"all_lines": lines},
    }
    ids = {test: test.split("::")[1] for test in (*FAIL_TO_PASS, *PASS_TO_PASS)}
    before = [f"{'FAILED' if test in FAIL_TO_PASS else 'PASSED'} r2e_tests/test_1.py::{ids[test]}" for test in ids]
    after = [f"PASSED r2e_tests/test_1.py::{ids[test]}" for test in ids]
    return {
        "repo_name": "calc",
        "docker_image": "somebody/calc_final:0123",
        "commit_hash": COMMIT,
        "parsed_commit_content": json.dumps(
            {
                "file_diffs": [{"header": {"file": {"path": "calc.py"}}, "is_binary_file": False, "hunks": [hunk]}],
                "old_commit_hash": "f" * 40,
                "commit_date": "2024-02-29T12:00:00",
            }
        ),
        "execution_result_content": json.dumps(
            {
                "test_file_names": ["test_1.py"],
                "test_file_codes": [WHOLE],
                "old_commit_res_stdout": "\n".join(["=== short test summary info ===", *before]),
                "new_commit_res_stdout": "\n".join(["=== short test summary info ===", *after]),
            }
        ),
        "modified_files": ["calc.py", "docs.txt"],
        "problem_statement": "[ISSUE]\nclamp is wrong\n[/ISSUE]",
        "expected_output_json": json.dumps(dict.fromkeys(ids.values(), "PASSED")),
        **changes,
    }


def make_clone(folder: Path, files: dict[str, bytes]) -> str:
    """A git clone with one commit of these files (a path that ends in ``@`` is a link); its hash."""
    folder.mkdir(parents=True)
    for path, data in files.items():
        target = folder / path.removesuffix("@")
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith("@"):
            target.symlink_to(data.decode())
        else:
            target.write_bytes(data)
    git(folder, "init", "-q")
    git(folder, "add", "-A", "-f")
    git(folder, "commit", "-q", "-m", "one")
    return git(folder, "rev-parse", "HEAD").strip()


def git(folder: Path, *arguments: str) -> str:
    """Run git as nobody in particular, with nobody's configuration."""
    who = [
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@localhost",
        "-c",
        "core.autocrlf=false",
        "-c",
        "commit.gpgsign=false",
    ]
    return subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, check=True).stdout.decode()


def repo_bytes(**changes: str) -> dict[str, bytes]:
    """The small repository's files."""
    return {path: text.encode() for path, text in {**REPO_FILES, **changes}.items()}


def healthy_bytes() -> dict[str, bytes]:
    """The same, mended and with all of its tests."""
    return {path: text.encode() for path, text in {**REPO_FILES, "calc.py": FIXED, "tests/test_calc.py": WHOLE}.items()}


def _with_more(
    draw: st.DrawFn, row: dict[str, JsonValue], optional: dict[str, st.SearchStrategy[str | None]]
) -> dict[str, JsonValue]:
    for name, values in optional.items():
        if draw(st.booleans()):
            row[name] = draw(values)
    for name, value in draw(
        st.dictionaries(st.sampled_from(["difficulty", "extra", "", "é"]), JSON, max_size=2)
    ).items():
        row[name] = value
    return {name: row[name] for name in draw(st.permutations(list(row)))}
