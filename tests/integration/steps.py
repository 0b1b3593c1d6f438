"""Steps on their way through a service: sent by ranks, and as an exporter got them."""

from __future__ import annotations

from collections.abc import Sequence

from otel_ml_exporters import StepRecord
from otel_ml_exporters.testing import RecordingExporter
from tests.integration.conftest import Sender
from tests.otlp import FakeWriter


def rows(exporter: RecordingExporter, axis: str = "step") -> dict[int, dict[str, float]]:
    """Return step → values of what was exported, without the service's account of itself."""
    return {
        record.step: {name: value for name, value in record.values.items() if not name.startswith("otel_ml/")}
        for record in list(exporter.records)
        if isinstance(record, StepRecord) and record.axis == axis
    }


def train(sender: Sender, writers: Sequence[FakeWriter], steps: range) -> None:
    for step in steps:
        for writer in writers:
            assert sender.send("metrics", writer.step(step, {"loss": float(step + writer.rank)})).status == 200
