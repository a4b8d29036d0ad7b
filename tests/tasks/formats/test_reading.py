"""Rows out of files: what a file holds decides, and what cannot be read is named with its place."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.errors import UsageError
from patchgym.tasks.formats.reading import read_rows
from patchgym.tasks.formats.refused import Refused, Row, parse_json
from tests.tasks.formats.rows_for_tests import JSON, TEXT

ROW = {"instance_id": "a", "n": 1}


def read(path: Path) -> list[tuple[str, Row | str]]:
    """Places, relative to the file's folder, and rows or the reasons why there is none."""
    return [
        (found.where.removeprefix(f"{path.parent}/"), found.row.reason if isinstance(found.row, Refused) else found.row)
        for found in read_rows(path)
    ]


@given(st.dictionaries(TEXT, JSON))
def test_every_row_is_read_as_it_was_written(row: Row) -> None:
    assert parse_json(json.dumps(row, ensure_ascii=False)) == row


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b'{"a": 1}\n{"a": 2}\n', [("f:1", {"a": 1}), ("f:2", {"a": 2})]),
        (b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"a": 2}', [("f:1", {"a": 1}), ("f:3", {"a": 2})]),
        (b'{"a": 1}\n{"a": \n{"a": 3}\n', [("f:1", {"a": 1}), ("f:2", "not_json"), ("f:3", {"a": 3})]),
        ('{"a": "\u2028"}\n'.encode(), [("f:1", {"a": "\u2028"})]),
        (b'{\n "a": 1\n}\n', [("f", {"a": 1})]),
        (b'\xef\xbb\xbf[{"a": 1}, 2]', [("f[0]", {"a": 1}), ("f[1]", "not_an_object")]),
        (b"[1,", [("f", "not_json")]),
        (b"[]", [("f", "empty_file")]),
        (b"", [("f", "empty_file")]),
        (b" \r\n\t", [("f", "empty_file")]),
        (b"3\n", [("f:1", "not_an_object")]),
        (b'{"a": "\xff"}\n', [("f:1", "not_utf8")]),
        (b'{"a": "\\ud800"}\n', [("f:1", "not_unicode")]),
        (b'{"a": "\\ud83d\\ude00"}\n', [("f:1", {"a": "\U0001f600"})]),
        (b'{"a": NaN}\n', [("f:1", "not_json")]),
        (b'{"a": 1e999}\n', [("f:1", "not_json")]),
        (b'{"a": 1, "a": 2}\n', [("f:1", "not_json")]),
        (b"[" * 100_000, [("f", "not_json")]),
        (b"<!DOCTYPE html>\n", [("f:1", "not_json")]),
        (b"PAR1 and then nothing that is Parquet", [("f", "broken_parquet")]),
    ],
)
def test_what_a_file_holds_is_read_or_named(tmp_path: Path, data: bytes, rows: list[tuple[str, Row | str]]) -> None:
    if data.startswith(b"PAR1"):
        pytest.importorskip("duckdb")
    (tmp_path / "f").write_bytes(data)
    assert read(tmp_path / "f") == rows


def test_a_line_may_be_long(tmp_path: Path) -> None:
    row = {"patch": "x" * 225_000}
    (tmp_path / "f").write_text(json.dumps(row) + "\n" + json.dumps(ROW))
    assert read(tmp_path / "f") == [("f:1", row), ("f:2", ROW)]


def test_the_files_of_a_folder_come_in_order_and_hidden_ones_not(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.json", ".git/c.jsonl", "data/d.ndjson", "README.md"):
        (tmp_path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "set" / name).write_text(json.dumps({"from": name}))
    assert [row for _, row in read(tmp_path / "set")] == [{"from": f} for f in ("a.json", "b.jsonl", "data/d.ndjson")]


def test_a_folder_without_data_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no data file"):
        read(tmp_path)


def test_parquet_rows_are_those_that_were_written(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "odd [name]*.parquet"
    query = """SELECT * FROM (VALUES
        ('a', ['x', 'y'], {'k': 1, 'l': [1.5]}, TIMESTAMP '2024-02-29 12:00:00', 'NaN'::DOUBLE, e'\\r\\né', NULL),
        ('b', [], NULL, NULL, 0.25, '', true)) t(id, tests, s, made, score, text, flag)"""
    duckdb.sql(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
    duckdb.sql(f"COPY (SELECT 1 AS other) TO '{tmp_path / 'odd nx.parquet'}' (FORMAT parquet)")
    first = {"id": "a", "tests": ["x", "y"], "s": {"k": 1, "l": [1.5]}, "made": "2024-02-29T12:00:00"}
    assert [row for _, row in read(path)] == [
        {**first, "score": None, "text": "\r\né", "flag": None},
        {"id": "b", "tests": [], "s": None, "made": None, "score": 0.25, "text": "", "flag": True},
    ]
