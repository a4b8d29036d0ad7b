"""Rows on disk: what an update was made of, number for number, so that it can be made again."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from patchgym.errors import DataError
from patchgym.train.reasons import Reason
from patchgym.train.report import Mismatch
from patchgym.train.rows import RowSet, TokenRow

_TOLD = "rows"
_PARTS = {
    "ids": torch.int32,
    "trainable": torch.uint8,
    "logprobs": torch.float64,
    "turns": torch.int32,
    "advantages": torch.float64,
}


def rows_hash(rows: RowSet) -> str:
    """SHA-256 (hex) of rows and of what is told beside them."""
    tensors, told = _taken_apart(rows)
    digest = hashlib.sha256(told.encode())
    for name in sorted(tensors):
        digest.update(tensors[name].numpy().tobytes())
    return digest.hexdigest()


def rows_bytes(rows: RowSet) -> bytes:
    """Rows as the content of a safetensors file: their numbers as tensors, the rest as JSON in its header."""
    tensors, told = _taken_apart(rows)
    return safetensors.torch.save(tensors, {_TOLD: told})


def read_rows(path: Path) -> RowSet:
    """The rows that ``rows_bytes`` made a file of.

    Raises:
        DataError: the file is damaged.
    """
    try:
        with safetensors.safe_open(path, "pt") as file:
            told = json.loads(file.metadata()[_TOLD])
            tensors = {name: file.get_tensor(name) for name in [*_PARTS, "lengths"]}
        return _put_together(tensors, told)
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        raise DataError(f"Cannot read the rows in {path}", why=f"{type(error).__name__}: {error}") from error


def _taken_apart(rows: RowSet) -> tuple[dict[str, Tensor], str]:
    def column(name: str) -> Iterator[float]:
        for row in rows.rows:
            yield from row.advantages or (0.0,) * len(row.ids) if name == "advantages" else getattr(row, name)

    tensors = {name: torch.tensor(list(column(name)), dtype=kind) for name, kind in _PARTS.items()}
    tensors["lengths"] = torch.tensor([len(row.ids) for row in rows.rows], dtype=torch.int64)
    told = {
        "rows": [_told(row) for row in rows.rows],
        "left_out": {reason.value: count for reason, count in sorted(rows.left_out.items())},
        "groups": rows.groups,
        "zero_variance_groups": rows.zero_variance_groups,
        "mismatches": [one.model_dump(mode="json") for one in rows.mismatches],
        "flat_groups": rows.flat_groups,
    }
    return tensors, json.dumps(told, sort_keys=True)


def _told(row: TokenRow) -> dict[str, Any]:
    return {
        "trajectory": row.trajectory_id,
        "group": row.group_id,
        "temperature": row.temperature,
        "advantages": row.advantages is not None,
        "reward": row.reward,
        "versions": row.versions,
    }


def _put_together(tensors: dict[str, Tensor], told: dict[str, Any]) -> RowSet:
    columns: dict[str, list[Any]] = {name: tensors[name].tolist() for name in _PARTS}
    ends = [0, *accumulate(tensors["lengths"].tolist())]
    rows = [_row(columns, span, one) for span, one in zip(pairwise(ends), told["rows"], strict=True)]
    return RowSet(
        rows=tuple(rows),
        left_out=Counter({Reason(reason): count for reason, count in told["left_out"].items()}),
        groups=told["groups"],
        zero_variance_groups=told["zero_variance_groups"],
        mismatches=tuple(Mismatch.model_validate(one) for one in told["mismatches"]),
        flat_groups=tuple(told["flat_groups"]),
    )


def _row(columns: dict[str, list[Any]], span: Sequence[int], told: dict[str, Any]) -> TokenRow:
    parts = {name: tuple(values[slice(*span)]) for name, values in columns.items()}
    return TokenRow(
        ids=parts["ids"],
        trainable=parts["trainable"],
        logprobs=parts["logprobs"],
        turns=parts["turns"],
        trajectory_id=told["trajectory"],
        group_id=told["group"],
        temperature=told["temperature"],
        advantages=parts["advantages"] if told["advantages"] else None,
        reward=told["reward"],
        versions=tuple((turn, version) for turn, version in told["versions"]),
    )
