from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_exporters import (
    Artifact,
    Audio,
    HistogramValue,
    Image,
    Params,
    Record,
    RunStatus,
    Span,
    SpanBatch,
    SpanLink,
    StepRecord,
    Summary,
    Table,
    Text,
)
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.storage import line_deltas
from otel_ml_service.storage.record_codec import decode, encode, nbytes

SPAN = Span(
    "t" * 32,
    "s" * 16,
    None,
    "forward",
    1,
    2,
    "trainer",
    3,
    "step",
    4,
    {"k": [1, "a", None]},
    "ok",
    (SpanLink("a", "b", {"n": 1}),),
)

RECORDS: list[Record] = [
    StepRecord(1, "trainer", "step", 7, 0, 1.5, {"loss": 0.1 + 0.2}, writers_missing=2, amendment=True),
    Params(2, 0.1, {"lr": 1e-3, "nested": {"deep": [1, 2.5, None, True, "ü"]}}),
    Summary(3, 0.1, {"accuracy": 0.9}),
    Text(4, 0.1, "sample", "step", None, "\ud800 half a surrogate"),
    Table(5, 0.1, "t", "step", 1, ("a", "b"), ((1, "x"), (2.5, None))),
    Image(6, 0.1, "i", "step", 1, b"\x89PNG\x00\xff", 3, 4, "caption"),
    Audio(7, 0.1, "a", "step", 1, b"RIFF\x00", 16000),
    HistogramValue(8, 0.1, "h", "step", 1, (0.0, 1.0, 2.0), (3.0, 4.0)),
    Artifact(9, 0.1, "model", "model", "a/b.pt", Path("/x/b.pt"), "file:///x/b.pt", 3, "ab" * 32, 5, ("best",)),
    SpanBatch(10, (SPAN, SPAN)),
    RunStatus(11, 0.1, "finished"),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_every_kind_of_record_comes_back_as_it_went(record: Record) -> None:
    assert decode(encode(record)) == record


def test_a_parameter_that_is_a_number_of_numpy_a_path_or_a_mapping_comes_back_as_json_has_it() -> None:
    values = {
        "lr": np.float32(0.5),
        "layers": np.int64(3),
        "data": Path("/data/a"),
        "nested": MappingProxyType({"a": 1}),
    }

    back = decode(encode(Params(1, 0.0, values)))

    assert back == Params(1, 0.0, {"lr": 0.5, "layers": 3, "data": "/data/a", "nested": {"a": 1}})


def test_what_json_does_not_know_is_refused_with_its_name() -> None:
    with pytest.raises(TypeError, match="of type object cannot be stored"):
        encode(Params(1, 0.0, {"what": object()}))


@given(st.floats(allow_nan=False))
def test_a_value_comes_back_to_the_last_bit(value: float) -> None:
    back = decode(encode(Summary(1, value, {"x": value})))

    assert isinstance(back, Summary)
    assert back.values["x"].hex() == value.hex()
    assert back.time.hex() == value.hex()


def test_nan_and_infinities_stay_what_they_are() -> None:
    back = decode(encode(StepRecord(1, "", "step", 0, 0, 0.0, {"a": math.nan, "b": math.inf, "c": -math.inf})))

    assert isinstance(back, StepRecord)
    assert math.isnan(back.values["a"])
    assert (back.values["b"], back.values["c"]) == (math.inf, -math.inf)


@given(st.lists(st.builds(replace, st.just(SPAN), name=st.text(), attributes=st.dictionaries(st.text(), st.text()))))
def test_spans_of_any_text_come_back_as_they_went(spans: list[Span]) -> None:
    assert decode(encode(SpanBatch(1, spans))) == SpanBatch(1, tuple(spans))


def test_spans_are_handed_on_as_they_are_written_without_being_read() -> None:
    back = decode(encode(SpanBatch(1, [SPAN] * 3)))

    assert isinstance(back, SpanBatch)
    assert isinstance(back.spans, SpanLines)


LINE = json.dumps(
    {"trace_id": "t" * 32, "span_id": "s" * 16, "parent_id": None, "name": "forward", "start_ns": 1, "end_ns": 2,
     "role": "trainer", "rank": 3, "axis": "step", "step": 4, "attributes": {"k": [1, "a", None]}, "status": "ok",
     "links": [{"trace_id": "a", "span_id": "b", "attributes": {"n": 1}}]},
    separators=(",", ":"),
)  # fmt: skip


@pytest.mark.parametrize("between", ["", "\n"], ids=["in one line", "a line each"])
def test_spans_as_former_services_wrote_them_are_read(between: str) -> None:
    text = f'{{"seq":1,"spans":[{between}{LINE},{between}{LINE}{between}]}}'

    assert decode(("spans", text, None)) == SpanBatch(1, (SPAN, SPAN))


def test_spans_are_stored_as_whole_lines_where_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_deltas, "native", None)

    assert encode(SpanBatch(1, (SPAN, SPAN))) == ("spans", f'{{"seq":1,"spans":[\n{LINE},\n{LINE}\n]}}', None)


def test_spans_of_a_former_service_that_were_damaged_are_not_taken_for_spans() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        decode(("spans", f'{{"seq":1,"spans":[\n{LINE},\n{LINE[1:]}\n]}}', None))


@pytest.mark.parametrize(
    "change",
    [("count", "number"), ('"count":2', '"count":3'), ('"size":', '"size":1'), ('"crc":', '"crc":1'), ("{", "[")],
)
def test_spans_whose_head_was_damaged_are_not_taken_for_spans(change: tuple[str, str]) -> None:
    kind, text, media = encode(SpanBatch(1, (SPAN, SPAN)))

    with pytest.raises((ValueError, KeyError)):
        decode((kind, text.replace(*change, 1), media))


def test_spans_take_a_few_characters_each_on_the_disk_and_all_of_theirs_in_memory() -> None:
    batch = SpanBatch(1, SpanLines.of([replace(SPAN, span_id=f"{number:016x}") for number in range(1000)]))
    row = encode(batch)

    assert len(row[1]) < 20 * 1000
    assert nbytes(batch, row) > 250 * 1000
