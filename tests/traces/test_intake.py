"""JSON, attachments and the first kilobytes of files."""

import base64
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.content import ObjectStore
from patchgym.traces.content import parts_of, tool_calls_of, tool_specs, usage_of
from patchgym.traces.heads import heads_of
from patchgym.traces.intake import Intake
from patchgym.traces.jsontext import parsed
from patchgym.traces.values import count_kind

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_json_is_read_as_it_was_written(value: object) -> None:
    assert parsed(json.dumps(value)) == value
    assert parsed(json.dumps(value, ensure_ascii=False)) == value


@given(st.text())
def test_text_is_json_or_a_value_error(text: str) -> None:
    try:
        parsed(text)
    except ValueError:
        return


@given(st.dictionaries(st.text(max_size=15), JSON, max_size=5), st.booleans(), st.sampled_from([None, 2]))
def test_the_keys_of_the_first_object_are_found(value: dict[str, object], listed: bool, indent: int | None) -> None:
    (one,) = heads_of(json.dumps([value] if listed else value, indent=indent).encode())
    assert one.listed == listed
    assert set(one.keys) == {json.dumps(key)[1:-1] for key in value}
    texts = {json.dumps(key)[1:-1] for key, inner in value.items() if isinstance(inner, str)}
    assert set(one.texts) == texts


@given(st.dictionaries(st.text(), JSON, min_size=1, max_size=5), st.integers(0, 200))
def test_an_object_that_is_cut_has_no_keys_but_its_own(value: dict[str, object], end: int) -> None:
    known = {json.dumps(key)[1:-1] for key in value}
    for one in heads_of(json.dumps(value).encode()[:end]):
        assert set(one.keys) <= known


@given(st.binary(max_size=300))
def test_any_bytes_have_heads(data: bytes) -> None:
    heads_of(data)


def test_words_in_a_text_are_no_keys() -> None:
    line = json.dumps({"type": "user", "message": 'He said "sessionId": {"payload": 1} and "trajectory": []'})
    assert [set(one.keys) for one in heads_of(line.encode())] == [{"type", "message"}]


def intake(tmp_path: Path) -> Intake:
    """One with a store of its own."""
    return Intake(ObjectStore(tmp_path / "objects"))


DATA = base64.b64encode(b"bytes").decode()


@pytest.mark.parametrize(
    ("part", "media_type"),
    [
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}, "image/png"),
        ({"type": "image_url", "image_url": {"url": f"data:image/gif;base64,{DATA}"}}, "image/gif"),
        ({"type": "input_image", "image_url": f"data:image/webp;base64,{DATA}"}, "image/webp"),
        ({"type": "image", "image": f"data:image/png;base64,{DATA}"}, "image/png"),
        ({"type": "image", "image_urls": [f"data:image/png;base64,{DATA}"]}, "image/png"),
        ({"inlineData": {"mimeType": "image/jpeg", "data": DATA}}, "image/jpeg"),
        ({"type": "document", "document": f"data:application/pdf;base64,{DATA}"}, "application/pdf"),
        ({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "bytes"}}, "text/plain"),
        ({"type": "image", "source": {"type": "base64", "media_type": "<script>", "data": DATA}}, "image/*"),
    ],
)
def test_the_bytes_of_an_attachment_are_kept_whoever_wrote_it(tmp_path: Path, part: object, media_type: str) -> None:
    held, left_out = intake(tmp_path), Counter[str]()
    (kept,) = parts_of([part], held, left_out).attachments
    assert (kept.media_type, kept.size, left_out, held.broken) == (media_type, 5, {}, {})
    assert kept.blob is not None
    assert held.objects.get(kept.blob) == b"bytes"


def test_an_attachment_that_lies_elsewhere_is_named_by_its_kind_and_counted(tmp_path: Path) -> None:
    left_out = Counter[str]()
    part = {"type": "image_url", "image_url": {"url": "https://example.org/a.png?x=1"}}
    (kept,) = parts_of([part], intake(tmp_path), left_out).attachments
    assert (kept.media_type, kept.blob, left_out) == ("image/png", None, {"addresses_of_attachments": 1})


@given(JSON)
def test_content_of_any_shape_is_read_or_counted(value: object) -> None:
    class Nowhere(Intake):
        """Keeps no bytes."""

        def __init__(self) -> None:
            self.problems: list[str] = []
            self.broken: Counter[str] = Counter()

    parts_of(value, Nowhere(), Counter())
    tool_calls_of(value, Counter())
    tool_specs(value)
    usage_of(value)


def test_parts_without_a_place_are_counted_by_their_kind(tmp_path: Path) -> None:
    left_out = Counter[str]()
    parts_of([{"type": "hologram"}, 5, {"type": "redacted_thinking", "data": "x"}], intake(tmp_path), left_out)
    assert left_out == {"content_hologram": 1, "content_that_is_no_part": 1, "encrypted_reasoning": 1}


def test_a_log_cannot_make_ever_more_kinds() -> None:
    counts = Counter[str]()
    for number in range(1000):
        count_kind(counts, "line", number)
    assert len(counts) == 301
    assert sum(counts.values()) == 1000


def test_a_line_that_is_too_long_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with path.open("wb") as file:
        file.write(b'{"a": 1}\n{"a": "')
        for _ in range(130):
            file.write(b"x" * (1 << 20))
        file.write(b'"}\n{"a": 3}')
    held = intake(tmp_path)
    assert list(held.lines(path)) == [(1, {"a": 1}), (3, {"a": 3})]
    assert held.broken == {"line_too_long": 1}


def test_of_many_problems_the_first_thousand_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    held = intake(tmp_path)
    for number in range(1500):
        held.damaged("no_json", str(number))
    assert (len(held.problems), held.broken) == (1000, {"no_json": 1500})
