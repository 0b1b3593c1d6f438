from __future__ import annotations

from pathlib import Path

import pytest

from otel_ml_exporters.experiments.run import ExperimentRun, RunSettings
from otel_ml_exporters.records import Artifact
from otel_ml_exporters.telemetry import Telemetry
from otel_ml_exporters.testing import RecordingExporter
from tests.full_disk import no_file_larger_than
from tests.strategies import START, Rank
from tests.waiting import eventually


def test_an_exporter_at_work_is_told_the_tags_of_a_later_launch(tmp_path: Path) -> None:
    exporter = RecordingExporter()
    run = ExperimentRun("exp", tmp_path, RunSettings({"recording": lambda: exporter}), Telemetry(), journal="j")
    for entry, rank in enumerate([Rank(0, instance="a", tags=("one",)), Rank(0, instance="b", tags=("two",))], 1):
        run.observe(entry, rank.step(entry, {"x": 1.0}), START + entry)
        run.advance(START + entry)
        run.commit()
        eventually(lambda: exporter.run is not None and exporter.records)

    eventually(lambda: exporter.run is not None and exporter.run.tags == ("one", "two"))
    run.ask_to_stop(10)
    run.close()


def test_a_file_that_finds_no_space_is_tried_again_with_all_that_was_decided_with_it(tmp_path: Path) -> None:
    run = ExperimentRun("exp", tmp_path, RunSettings({}), Telemetry(), journal="j")
    rank = Rank(0)
    content = b"x" * 3_000_000
    facts = {"name": "model", "artifact.type": "model", "artifact.path_in": "model.bin", "artifact.size": len(content)}
    run.observe(1, [*rank.event("ml.artifact", content, **facts), *rank.step(0, {"x": 1.0})], START)
    run.advance(START)

    with no_file_larger_than(2_000_000), pytest.raises(OSError, match="File too large"):
        run.commit()
    run.commit()

    [artifact] = [record for record in run.outbox.read(0, 10) if isinstance(record, Artifact)]
    assert artifact.local is not None
    assert artifact.local.read_bytes() == content
    assert [record.seq for record in run.outbox.read(0, 10)] == list(range(1, run.outbox.last_seq + 1))
    run.close()
