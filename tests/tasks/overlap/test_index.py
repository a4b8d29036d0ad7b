"""Benchmarks in files of many kinds, an index of them, and what is found in it."""

import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.content import ObjectStore
from patchgym.errors import DataError, UsageError
from patchgym.tasks.overlap.files import read_materials
from patchgym.tasks.overlap.index import Index, build_index, write_index
from patchgym.tasks.overlap.material import Material, repository
from patchgym.tasks.overlap.passages import COMMON_PLACES
from patchgym.tasks.overlap.report import common_lines, html_report
from patchgym.tasks.overlap.rows import row_material
from tests.tasks.overlap.made import CHUNKS, COUNT, MERGE, RENAMED, bug, made_set, made_task, record, unified

ISSUE = (
    "Merging two lists drops the tail of the longer one when both end in the same value. I expected the merged list to "
    "hold every value of both lists, and got one value less whenever a key function was given."
)
SWE_ROW: dict[str, str] = {
    "instance_id": "tools__lists-1",
    "repo": "Tools/Lists",
    "base_commit": "C" * 40,
    "patch": unified(MERGE.replace("<=", "<"), MERGE),
    "test_patch": unified("", "def test_tie():\n    assert merge_sorted([1], [1], key=int) == [1, 1]\n", "test_lib.py"),
    "problem_statement": ISSUE,
    "created_at": "2024-05-01T00:00:00Z",
}
CODE_ROW: dict[str, str] = {
    "task_id": "Made/0",
    "prompt": 'def merge_sorted(first, second, *, key=None):\n    """Merge two sorted lists into one."""\n',
    "canonical_solution": MERGE.partition('one."""\n')[2],
}


def indexed(*rows: dict[str, str]) -> Index:
    """An index of rows."""
    made = [row_material(row, origin="rows", number=number) for number, row in enumerate(rows)]
    return Index([material for material in made if material is not None])


def kinds(index: Index, material: Material) -> list[str]:
    """By what a record is found."""
    return [match.kind for match in index.matches(material)]


def write_rows(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_row_of_swe_bench_is_read() -> None:
    found = row_material(SWE_ROW, origin="swe", number=1)
    assert found is not None
    assert (found.id, found.repo, found.base_commit) == ("tools__lists-1", "tools/lists", "c" * 40)
    assert len(found.patches) == 2
    assert found.statements[0] == ISSUE
    assert found.created_at is not None


def test_the_bug_of_swe_smith_is_turned_round() -> None:
    row = {**SWE_ROW, "repo": "swesmith/tools__lists.abc123", "patch": unified(MERGE, MERGE.replace("<=", "<"))}
    found = row_material(row, origin="smith", number=1)
    assert found is not None
    assert found.repo == "tools/lists"
    assert "patch" in kinds(Index([found]), bug("mine", MERGE, "<=", "<"))


@pytest.mark.parametrize(
    "name",
    ["o/n", "https://github.com/O/N.git", "git@github.com:o/n.git", "o__n", "swesmith/o__n.1234abcd", "O/N/"],
)
def test_a_repository_has_one_name(name: str) -> None:
    assert repository(name) == "o/n"


def test_a_solution_behind_its_prompt_is_one_function() -> None:
    found = row_material(CODE_ROW, origin="code", number=1)
    assert found is not None
    assert [(function.name, function.after) for function in found.functions] == [("merge_sorted", MERGE.rstrip())]


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["id", "repo", "patch", "code", "prompt", "created_at", "base_commit", "x"]),
        st.none() | st.text() | st.integers() | st.lists(st.text(), max_size=2),
    )
)
def test_any_row_is_read_or_left_out(row: dict[str, str | int | list[str] | None]) -> None:
    material = row_material(
        {key: value if not isinstance(value, list) else list(value) for key, value in row.items()}, origin="", number=7
    )
    if material is not None:
        assert Material.from_line(material.to_line()) == material
        Index([material]).matches(material)


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "json", "rows.json", "by-id.json"])
def test_every_kind_of_file_gives_the_same_records(tmp_path: Path, ending: str) -> None:
    rows = [SWE_ROW, {**CODE_ROW, "task_id": "b"}]
    texts = {
        "json": json.dumps(rows),
        "rows.json": json.dumps({"rows": rows}),
        "by-id.json": json.dumps({"tools__lists-1": SWE_ROW, "b": CODE_ROW | {"task_id": "b"}}),
    }
    text = texts.get(ending, "".join(json.dumps(row) + "\n" for row in rows))
    path = tmp_path / f"bench.{ending}"
    path.write_bytes(gzip.compress(text.encode()) if ending.endswith("gz") else text.encode())
    reading = read_materials(path)
    assert [material.id for material in reading.materials] == ["tools__lists-1", "b"]
    assert not reading.refused


def test_rows_that_cannot_be_used_are_counted_and_the_others_read(tmp_path: Path) -> None:
    path = tmp_path / "bench.jsonl"
    path.write_text("\ufeff" + json.dumps(CODE_ROW) + '\r\n{"x": 1}\nnope\n[1]\n\n' + json.dumps(SWE_ROW) + "\n")
    reading = read_materials(path)
    assert len(reading.materials) == 2
    assert reading.refused == {"no_field_to_compare": 1, "not_json": 1, "not_an_object": 1}
    assert reading.examples["not_json"] == f"{path}:3"


def test_nothing_to_compare_damage_and_absence_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing to compare"):
        build_index([write_rows(tmp_path / "empty.jsonl", {"x": 1})])
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"{}" * 99)[:-9])
    with pytest.raises(DataError, match="damaged"):
        build_index([tmp_path / "cut.gz"])
    with pytest.raises(UsageError, match="no file"):
        build_index([tmp_path / "absent"])


def test_an_index_reads_as_it_was_written_and_is_the_same_bytes(tmp_path: Path) -> None:
    index, _ = build_index([write_rows(tmp_path / "rows.jsonl", SWE_ROW, CODE_ROW)])
    write_index(index, tmp_path / "a.index")
    again, _ = build_index([tmp_path / "a.index"])
    write_index(again, tmp_path / "b.index")
    assert again.materials == index.materials
    assert (tmp_path / "a.index").read_bytes() == (tmp_path / "b.index").read_bytes()


def test_an_index_that_lost_records_is_refused(tmp_path: Path) -> None:
    index, _ = build_index([write_rows(tmp_path / "rows.jsonl", SWE_ROW, CODE_ROW)])
    write_index(index, tmp_path / "a.index")
    lines = gzip.decompress((tmp_path / "a.index").read_bytes()).splitlines()
    (tmp_path / "a.index").write_bytes(gzip.compress(b"\n".join(lines[:-1])))
    with pytest.raises(DataError, match="1 records where its head says 2"):
        build_index([tmp_path / "a.index"])


def test_the_commit_alone_is_enough() -> None:
    mine = record("mine", COUNT, COUNT + "X = 1\n", base="c" * 40, repo="tools/lists")
    assert kinds(indexed(SWE_ROW), mine) == ["commit"]
    assert kinds(indexed(SWE_ROW), mine.model_copy(update={"repo": "other/lists"})) == []


def test_the_patch_is_found_in_another_place() -> None:
    before = "import os\n\n\n" + MERGE.replace("<=", "<")
    assert "patch" in kinds(indexed(SWE_ROW), record("mine", before, "import os\n\n\n" + MERGE, path="a/b.py"))


def test_a_function_is_found_before_and_after_its_bug() -> None:
    assert kinds(indexed(CODE_ROW), bug("mine", MERGE, "merged.append(first[left])", "pass")) == ["function"]


def test_a_function_with_other_names_is_found() -> None:
    other = re.sub(r"[a-z_]+", lambda match: RENAMED.get(match[0], match[0]), MERGE)
    assert kinds(indexed(CODE_ROW), bug("mine", other, "i += 1", "i += 2")) == ["renamed function"]


def test_a_renamed_function_with_a_new_line_is_found() -> None:
    other = re.sub(r"[a-z_]+", lambda match: RENAMED.get(match[0], match[0]), MERGE)
    other = other.replace("    out = []\n", "    out = []\n    total = len(a)\n")
    assert kinds(indexed(CODE_ROW), bug("mine", other, "i += 1", "i += 2")) == ["renamed function"]


def test_a_quoted_issue_is_found() -> None:
    told = f"Please fix this.\n\n> {ISSUE}\n\nThe tests are in tests/. Thank you for your work on it!"
    assert kinds(indexed(SWE_ROW), record("mine", COUNT, COUNT + "X = 1\n", told=told)) == ["statement"]


def test_other_code_is_not_found() -> None:
    index = indexed(SWE_ROW, CODE_ROW)
    assert (
        kinds(index, bug("mine", CHUNKS, "size < 1", "size < 2", told="chunks of size one fail with a wrong error"))
        == []
    )
    assert kinds(index, bug("mine", COUNT, ", 0)", ", 1)")) == []


def test_short_passages_are_not_found() -> None:
    row = {"id": "short", "code": "def get(self):\n    return self._value\n", "text": "Return the value."}
    mine = record(
        "mine", "def get(self):\n    return 1\n", "def get(self):\n    return self._value\n", told="Return the value."
    )
    assert kinds(indexed(row), mine) == []


def test_what_stands_in_many_records_is_not_found() -> None:
    mine = bug("mine", MERGE, "<=", "<")
    few = [{"id": f"few{at}", "code": MERGE} for at in range(COMMON_PLACES)]
    many = [{"id": f"many{at}", "code": MERGE} for at in range(COMMON_PLACES + 1)]
    assert len(kinds(indexed(*few), mine)) == len(few)
    assert kinds(indexed(*many), mine) == []


def test_many_tasks_on_one_function_of_a_set_do_not_hide_it(tmp_path: Path) -> None:
    """Bugs planted in one function of one repository are one place, however many they are."""
    objects = ObjectStore(tmp_path / "work")
    edits = [("<=", "<"), ("left += 1", "left += 2"), ("right += 1", "right += 2"), ("0, 0", "0, 1"), ("0, 0", "1, 0")]
    edits += [("merged = []", f"merged = [{at}]") for at in range(COMMON_PLACES)]
    made = [made_task(objects, f"t{at}", MERGE, old, new, repo="pkg") for at, (old, new) in enumerate(edits)]
    index, _ = build_index([made_set(tmp_path / "set", made, objects).path])
    assert "function" in kinds(index, bug("mine", MERGE, "return merged", "return list(merged)"))


@settings(deadline=None)
@given(st.text(), st.text())
def test_a_page_holds_no_markup_of_its_passages(ours: str, theirs: str) -> None:
    index = indexed(CODE_ROW)
    (match,) = index.matches(bug("mine", MERGE, "left += 1", "left += 2"))
    planted = f"<script>alert(1)</script>{ours}"
    page = html_report(
        planted, [type(match)("<b>", '"x"', "&", "function", 1.0, planted, theirs + "<img src=x>")], 1, 1
    )
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;" in page


def test_lines_in_both_passages_are_marked_whatever_their_layout() -> None:
    assert common_lines("a  = 1\nb = 2\n\n", "a = 1 # one\nc = 3\n\n") == {"a  = 1", "a = 1 # one"}
