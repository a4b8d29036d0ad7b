"""The published schema and field tables are those of the code."""

import json
from pathlib import Path

import pytest

from patchgym.cli.traces.schema import field_tables
from patchgym.records import Trajectory

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = Trajectory.model_json_schema(mode="serialization")
AGAIN = "patchgym traces schema > docs/trajectory.schema.json, and --fields into docs/trajectory-fields.md"


def test_the_published_schema_is_the_code_s() -> None:
    assert json.loads((DOCS / "trajectory.schema.json").read_text()) == SCHEMA, AGAIN


def test_the_published_tables_are_the_code_s() -> None:
    text = (DOCS / "trajectory-fields.md").read_text()
    assert text[text.index("## Trajectory\n") :].rstrip().split("\n") == field_tables(SCHEMA), AGAIN


@pytest.mark.parametrize("line", [line for line in field_tables(SCHEMA) if line.startswith("| `")])
def test_every_field_says_what_it_means(line: str) -> None:
    assert len(line.split(" | ")[-1].rstrip("| ")) > 3
