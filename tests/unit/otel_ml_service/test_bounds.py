"""The bounds of small tables; those of requests, runs and files have tests beside what they bound."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from otel_ml_exporters import PermanentExportError, RunInfo, Summary
from otel_ml_exporters.testing import FlakyExporter
from otel_ml_service.aggregation import cumulative_streams
from otel_ml_service.aggregation.engine import Engine
from otel_ml_service.aggregation.output import MAX_SAID, Output
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.aggregation.writer_state import MAX_GAPS, MAX_PARTS, WriterState
from otel_ml_service.delivery.pipeline import Pipeline
from otel_ml_service.delivery.retries import RetryPolicy
from otel_ml_service.live_runs.run_log import OutputLog, RunLog
from otel_ml_service.receiver import columns, resource, third_party
from otel_ml_service.receiver.decode import Decoder
from otel_ml_service.storage import recent_records
from otel_ml_service.storage.outbox import MAX_NOTICES, Commit, Outbox
from otel_ml_service.telemetry import MAX_LABELS, Telemetry
from tests.integration.conftest import Bench, bench
from tests.otlp import FakeWriter, third_party_request
from tests.strategies import START, Rank, writer
from tests.unit.otel_ml_service.aggregation.test_third_party_points import cumulative
from tests.waiting import eventually

__all__ = ["bench"]


def test_gaps_of_a_writer_beyond_the_bound_are_filled_from_the_oldest() -> None:
    state = WriterState(0, writer(), "pool")
    for number in range(MAX_GAPS + 100):
        state.receive(3 + 2 * number)

    assert len(state.received) == MAX_GAPS
    assert state.receive(2 * MAX_GAPS)  # a young gap can still be closed


def test_split_running_numbers_beyond_the_bound_count_as_complete_from_the_oldest() -> None:
    rank = Rank()
    series = rank.record(0, {"a": 1.0})[0].partials.series  # type: ignore[union-attr]
    state = WriterState(0, rank.writer, "pool")
    for seq in range(1, MAX_PARTS + 50):
        state.take(seq, 2, series)

    assert len(state.parts) == MAX_PARTS
    assert state.take(1, 2, series) == []


def test_streams_of_single_steps_beyond_the_bound_go_from_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cumulative_streams, "MAX_STREAMS", 50)
    engine = Engine("exp", EngineSettings())
    for step in range(200):
        point = cumulative(writer(role="other"), "tokens", 5.0, start=START, time=START + 1 + step, step=step)
        engine.observe(point, START + step)

    streams = engine._third_party.streams
    assert streams.count == sum(map(len, streams.tables.values())) <= 50
    assert max(meter.step or 0 for meter in streams.tables) == 199


def test_the_older_half_of_the_streams_goes_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cumulative_streams, "MAX_STREAMS", 50)  # a bound that one test can reach
    engine = Engine("exp", EngineSettings())
    for step in range(51):
        point = cumulative(writer(role="other"), "tokens", 5.0, start=START, time=START + 1 + step, step=step)
        engine.observe(point, START + step)

    kept = {meter.step for meter in engine._third_party.streams.tables}
    assert kept == set(range(25, 51))


def test_decoded_resources_and_shapes_are_cached_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_SHAPES", 10)  # a bound that one test can reach
    monkeypatch.setattr(resource, "_CACHED", 10)  # the same
    decoder = Decoder()
    for number in range(50):
        body = FakeWriter(rank=number).step(0, {f"m{number}": 1.0}).SerializeToString()
        assert len(decoder.protobuf("metrics", body).observations["run-1"]) == 2

    assert len(decoder._writers._known) <= 10
    assert len(decoder._writers._encoded) <= 10
    assert len(decoder._metrics.shapes._known) <= 10


def test_attributes_of_others_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(third_party, "_KNOWN", 10)  # a bound that one test can reach
    monkeypatch.setattr(third_party, "_LONGEST_KNOWN", 20)  # the same
    decoder = Decoder()
    known = decoder._metrics._third_party._known
    for number in range(50):
        decoder.protobuf(
            "metrics", third_party_request([{"name": "m", "value": 1.0, "of": number}]).SerializeToString()
        )
        assert 0 < len(known) <= 10
    known.clear()
    decoder.protobuf("metrics", third_party_request([{"name": "m", "value": 1.0, "of": "x" * 30}]).SerializeToString())

    assert not known


def test_an_engine_says_so_much_and_no_more() -> None:
    output = Output()
    for number in range(MAX_SAID + 10):
        output.say("too-late", f"Sentence {number}.")

    assert len(output.said) == len(output.notices) == MAX_SAID


def test_a_run_keeps_so_many_notices_and_no_more(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "run.db")
    for part in range(3):
        outbox.commit(Commit(notices=[f"Sentence {part}/{number}." for number in range(MAX_NOTICES // 2)]))

    assert len(outbox.notices) == MAX_NOTICES
    outbox.close()


def test_records_that_wait_for_exporters_in_memory_are_bounded_in_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_records, "MAX_BYTES", 1000)  # a bound that one test can reach
    outbox = Outbox(tmp_path / "run.db")
    for seq in range(1, 200):
        outbox.commit(Commit([Summary(seq, 0.0, {"x": float(seq)})]))

    assert outbox._recent.size <= 1000
    assert [record.seq for record in outbox.read(0, 1000)] == list(range(1, 200))
    outbox.close()


def test_reasons_of_losses_are_told_apart_up_to_a_hundred(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "run.db")
    outbox.commit(Commit([Summary(seq, 0.0, {"best": 1.0}) for seq in range(1, 201)]))
    exporter = FlakyExporter(lambda call, records: PermanentExportError(f"record {records[0].seq} is bad"))
    pipeline = Pipeline(
        "bad", lambda: exporter, RunInfo("r", "e", "r", tmp_path, 0.0), outbox,
        mark=lambda seq, lost: None, say=lambda slug, sentence: None, retry=RetryPolicy(),
    )  # fmt: skip
    pipeline.start()
    eventually(lambda: pipeline.behind == 0)
    pipeline.ask_to_stop(5)
    pipeline.join()
    outbox.close()

    assert len(pipeline.status.lost) == 101
    assert sum(pipeline.status.lost.values()) == 200


def test_counters_are_told_apart_up_to_a_hundred() -> None:
    telemetry = Telemetry()
    for number in range(MAX_LABELS + 500):
        telemetry.count("rejected", reason=f"no experiment {number}")

    assert telemetry.value("rejected", reason="other") == 500
    assert len(telemetry.prometheus().splitlines()) <= MAX_LABELS + 3


def test_the_log_of_a_run_begins_anew_and_one_old_file_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otel_ml_service.live_runs.run_log.LOG_BYTES", 2000)
    log = RunLog("run-1", tmp_path / "service.log")
    with log.speaking():
        for number in range(200):
            logging.getLogger("otel_ml_service.test").warning("line %d", number)
    log.close()

    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes.keys() == {"service.log", "service.log.1"}
    assert max(sizes.values()) <= 2000


def test_the_output_of_an_embedded_service_begins_anew_where_it_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "service.log"
    with path.open("a") as stream:
        handler = OutputLog(stream, 1000)
        for number in range(500):
            handler.emit(logging.LogRecord("x", logging.WARNING, "", 0, f"line {number}", None, None))

    assert path.stat().st_size <= 1100
    assert path.read_text().splitlines()[-1] == "line 499"


def test_requests_that_no_run_can_take_are_kept_up_to_a_bound(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "otel_ml_service.live_runs.unreadable_requests._MOST_BYTES", 1000
    )  # a bound that one test can reach
    (bench.folder / "default" / "broken" / "state" / "run.db").mkdir(parents=True)
    sender = bench.sender(bench.service())
    broken = FakeWriter(experiment="broken")
    for step in range(10):
        assert sender.send("metrics", broken.step(step, {"loss": 1.0})).status == 200

    line = 'otel_ml_dropped_total{reason="its run\'s files cannot be used"}'
    eventually(lambda: line in sender.request("GET", "/metrics").body.decode())
    kept = [path.stat().st_size for path in (bench.folder / ".service" / "unreadable").iterdir()]
    assert kept
    assert sum(kept) <= 1000
