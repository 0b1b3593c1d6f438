"""One metric found in the text of a record is what reading the whole record gives."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml.wire.step_line import MetricFinder
from otel_ml_exporters.backends.jsonl import JsonlExporter
from otel_ml_exporters.records import RunInfo, StepRecord
from otel_ml_service.storage.record_codec import encode

NAMES = st.one_of(
    st.sampled_from(
        ["loss", "seq", "step", "time", "values", "amendment", "writers_missing", 'a"loss', "Verlust/größe", "é"]
    ),
    st.text(max_size=8),
)
VALUES = st.dictionaries(NAMES, st.floats(), min_size=1, max_size=6)


def same(found: float | None, value: float | None) -> bool:
    if found is None or value is None:
        return found is value
    return found == value or (math.isnan(found) and math.isnan(value))


@given(values=VALUES, name=NAMES, role=NAMES, axis=NAMES, step=st.integers(0, 2**60), is_amended=st.booleans())
def test_a_metric_in_a_record_is_found_with_its_place(
    values: Mapping[str, float], name: str, role: str, axis: str, step: int, is_amended: bool
) -> None:
    record = StepRecord(7, role, axis, step, 2, 1.5, values, writers_missing=3, amendment=is_amended)

    for asked in {name, *values}:
        point = MetricFinder(asked).find(encode(record)[1].encode())
        assert same(None if point is None else point.value, values.get(asked))
        assert point is None or point[:4] == (7, axis, step, 2)


def test_a_line_of_the_file_and_a_line_of_another_program_are_read_alike(tmp_path: Path) -> None:
    exporter = JsonlExporter()
    exporter.start(RunInfo("one", "default", "one", tmp_path, 0.0))
    exporter.export([StepRecord(1, "trainer", "step", 3, 0, 1.5, {"time": math.inf, "loss": 0.25, "nan": math.nan})])
    exporter.shutdown(1.0, None)
    [line] = (tmp_path / "metrics.jsonl").read_bytes().splitlines()
    other = json.dumps(json.loads(line), indent=1).encode()

    for name in ("time", "loss", "nan", "none"):
        ours, theirs = MetricFinder(name).find(line), MetricFinder(name).find(other)
        assert repr(ours) == repr(theirs)
        assert (ours is None) == (name == "none")


HEAD = '{"seq":7,"role":"%s","axis":"step","step":3,"attempt":2,"time":1.5,"values":'

LINES = {
    "keys in another order": (
        '{"values":{"loss":0.5},"attempt":2,"step":3,"axis":"epoch","seq":7}',
        (7, "epoch", 3, 2, 0.5),
    ),
    "a quote in the role": (HEAD % 'a\\"b' + '{"loss":0.5}}', (7, "step", 3, 2, 0.5)),
    "spaces": ('{"seq": 7, "step": 3, "values": {"x": 1, "loss":0.5}}', (7, "step", 3, 0, 0.5)),
    "a number as text": (HEAD % "" + '{"loss":"0.5"}}', (7, "step", 3, 2, 0.5)),
    "no place but a step": ('{"step":3,"values":{"loss":0.5}}', (0, "step", 3, 0, 0.5)),
    "no step": ('{"seq":7,"values":{"loss":0.5}}', None),
}
"""As a program of somebody else may write them into the file."""


@pytest.mark.parametrize(("line", "expected"), LINES.values(), ids=LINES)
def test_a_line_of_another_form_is_read_as_a_whole(line: str, expected: tuple[object, ...] | None) -> None:
    assert MetricFinder("loss").find(line.encode()) == expected


@pytest.mark.parametrize("values", ['{"loss":0.5,', '{"lr":1.0,"loss":0.5,'], ids=["the first value", "a later one"])
def test_of_a_record_nothing_is_asked_for_behind_the_metric(values: str) -> None:
    cut = f"{HEAD % 'trainer'}{values}"

    assert MetricFinder("loss").find(cut.encode()) == (7, "step", 3, 2, 0.5)
