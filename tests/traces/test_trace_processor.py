"""What `otel-ml trace` writes of a job is for Perfetto's own trace_processor what it is in the run."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

import otel_ml
from tests.collector.pipeline import Service, experiment_of, training
from tests.e2e.jobs import environment, finished
from tests.perfetto_trace import Trace, read_trace
from tests.traces.job import ROLES, go_on, job
from tests.traces.stored import rows_of
from tests.traces.trace_processor import processed

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.timeout(300)]

FIRST, LAST = 10, 19


class Written(NamedTuple):
    """A trace of some steps, and the run that it is of."""

    file: Path
    run: Path
    trace: Trace
    spans: Mapping[str, dict[str, Any]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("written")
    experiment, file = experiment_of(folder), folder / "steps.pftrace"
    with Service(folder) as service:
        commands = job(folder, service.endpoint, OTEL_ML_EXPERIMENT_ID=experiment)
        go_on(folder)
        with training(commands, folder):
            pass
        service.wait_for_the_end_of(experiment)
        service.stop()
        run = service.run_of(experiment)
    command = [sys.executable, "-m", "otel_ml_service", "trace", experiment, "--dir", service.runs]
    finished([*command, "--steps", f"{FIRST}-{LAST}", "-o", file], environment(), folder)
    spans = {row["span_id"]: row for row in rows_of(run) if FIRST <= row["step"] <= LAST}
    return Written(file, run, processed(file), spans)


def test_a_slice_is_a_span_to_the_nanosecond_on_the_track_of_its_rank(written: Written) -> None:
    found = [
        (one.notes["span_id"], *one.track[:2], one.name, one.begin_ns, one.end_ns - one.begin_ns)
        for one in written.trace.slices
    ]

    assert sorted(found) == sorted(
        (of, row["role"], f"rank {row['rank']}", row["name"], row["start_ns"], row["end_ns"] - row["start_ns"])
        for of, row in written.spans.items()
    )


def test_a_slice_is_inside_of_that_of_its_parent(written: Written) -> None:
    spans = written.spans
    expected = {
        span_id: row["parent_id"]
        for span_id, row in spans.items()
        if row["parent_id"] and process_of(spans[row["parent_id"]]) == process_of(row)
    }

    assert {one.notes["span_id"]: one.inside for one in written.trace.slices if one.inside} == expected


def process_of(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["role"], row["rank"]


def test_a_slice_has_the_step_the_attributes_and_the_status_of_its_span(written: Written) -> None:
    for one in written.trace.slices:
        row = written.spans[one.notes["span_id"]]
        told = {"step": row["step"], **row["attributes"], "trace_id": row["trace_id"], "span_id": row["span_id"]}
        told |= {} if row["status"] == "unset" else {"status": row["status"]}
        assert one.notes == as_perfetto_has_it(told)


def as_perfetto_has_it(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as its SQL has them: a dot in a name is `_`, and each item of a list is one of its own."""
    found: dict[str, Any] = {}
    for name, value in attributes.items():
        items = {f"[{at}]": item for at, item in enumerate(value)} if isinstance(value, list) else {"": value}
        found |= {name.replace(".", "_") + place: item for place, item in items.items()}
    return found


def test_a_flow_is_a_link_or_a_parent_in_another_process(written: Written) -> None:
    spans = written.spans
    links = {(link["span_id"], row["span_id"]) for row in spans.values() for link in row.get("links", ())}
    parents = {
        (row["parent_id"], row["span_id"])
        for row in spans.values()
        if row["parent_id"] and process_of(spans[row["parent_id"]]) != process_of(row)
    }

    assert written.trace.flows == links | parents
    steps = LAST - FIRST + 1
    assert len(links) == ROLES["trainer"] * steps * (ROLES["generator"] + 2)
    assert len(parents) == ROLES["trainer"] * steps


def test_a_counter_has_the_values_of_its_metric(written: Written) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_ML_DIR", str(written.run.parents[1]))
        rows = otel_ml.read(written.run.name)
    expected = {}
    for name, (steps, values) in rows.items():
        chosen = [value for step, value in zip(steps, values, strict=True) if FIRST <= step <= LAST]
        if chosen:
            expected[name] = chosen

    found = {
        path[-1]: [value for _, value in points]
        for path, points in written.trace.counters.items()
        if not path[-1].endswith(" (time)")  # what is on another axis says so
    }
    assert found == expected
    assert found["loss"] == [1 / (1 + step) for step in range(FIRST, LAST + 1)]


def test_a_text_is_a_mark(written: Written) -> None:
    texts = defaultdict(set)
    for one in written.trace.marks:
        texts[one.track, one.begin_ns == one.end_ns].add((one.name, one.notes["step"], one.notes["text"]))

    expected = {(name, step, f"step {step}") for step in range(FIRST, LAST + 1) for name in ("note", "note/rank_1")}
    assert texts == {(("texts",), True): expected}


def test_how_other_tests_read_a_trace_is_how_trace_processor_does(written: Written) -> None:
    ours = read_trace(written.file)

    for of_trace in (ours, written.trace):
        of_trace.slices.sort(key=lambda one: (one.track, one.notes["span_id"]))
        of_trace.marks.sort(key=lambda one: (one.track, one.begin_ns, one.name))
    assert [(one.track, one.name, one.begin_ns, one.end_ns, one.inside) for one in ours.slices] == [
        (one.track, one.name, one.begin_ns, one.end_ns, one.inside) for one in written.trace.slices
    ]
    assert (ours.flows, ours.counters) == (written.trace.flows, written.trace.counters)
    assert [one.begin_ns for one in ours.marks] == [one.begin_ns for one in written.trace.marks]


def test_what_trace_processor_cannot_read_is_noticed(written: Written, tmp_path: Path) -> None:
    trace = perfetto.Trace.FromString(written.file.read_bytes())
    del trace.packet[0]  # it says that names begin anew
    (tmp_path / "headless.pftrace").write_bytes(trace.SerializeToString())

    with pytest.raises(AssertionError, match="skipped"):
        processed(tmp_path / "headless.pftrace")
