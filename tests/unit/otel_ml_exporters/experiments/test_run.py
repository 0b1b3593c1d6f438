from __future__ import annotations

from pathlib import Path

import pytest

from otel_ml_exporters.experiments.run import ExperimentRun, RunSettings
from otel_ml_exporters.records import Artifact
from otel_ml_exporters.telemetry import Telemetry
from tests.full_disk import no_file_larger_than
from tests.strategies import START, Rank


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
