"""What a Collector's file exporter recorded, read as a service would have taken it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToJson

from otel_ml_exporters.records import RunStatus, StepRecord
from otel_ml_service.stored_runs.collector_recording import NoRecordingError, is_recording, read_recording
from otel_ml_service.stored_runs.extra_reductions import ExtraReductions
from tests.otlp import FakeWriter

NONE = ExtraReductions(())


def lines_of(*requests: Any) -> list[str]:
    return [MessageToJson(request, indent=None) for request in requests]


def written(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def of_two_runs() -> list[str]:
    requests = []
    for run in ("run-1", "run-2"):
        for rank in range(2):
            writer = FakeWriter(experiment=run, rank=rank, world_size=2)
            steps = [writer.step(step, {"loss": step + rank}) for step in range(3)]
            requests += [*steps, writer.goodbye()]
    return lines_of(*requests)


@pytest.mark.parametrize("order", [1, -1], ids=["as it came", "the other way round"])
def test_every_run_of_a_file_is_read_to_its_end_in_whatever_order_its_lines_are(tmp_path: Path, order: int) -> None:
    lines = of_two_runs()[::order]
    path = written(tmp_path / "recorded.json", [*lines[:4], "", "no message", '{"resourceMetrics": [', *lines[4:]])
    sizes: list[int] = []

    found = read_recording(path, NONE, sizes.append)

    assert found.unreadable == 2
    assert sum(sizes) == path.stat().st_size
    assert sorted(run.id for run in found.runs) == ["run-1", "run-2"]
    for run in found.runs:
        steps = {record.step: record.values["loss"] for record in run.records
                 if isinstance(record, StepRecord) and "loss" in record.values}  # fmt: skip
        assert steps == {0: 0.5, 1: 1.5, 2: 2.5}
        assert [record.status for record in run.records if isinstance(record, RunStatus)][-1] == "finished"
        assert run.facts.experiment_name in {"", "default", None, run.id}


def test_a_job_that_never_said_goodbye_is_over_too(tmp_path: Path) -> None:
    writer = FakeWriter(rank=0, world_size=2)
    path = written(tmp_path / "recorded.json", lines_of(*[writer.step(step, {"loss": 1.0}) for step in range(3)]))

    [run] = read_recording(path, NONE).runs

    assert [record.step for record in run.records if isinstance(record, StepRecord) and "loss" in record.values] == [
        0, 1, 2,
    ]  # fmt: skip
    assert isinstance(run.records[-1], RunStatus)
    assert run.records[-1].status != "running"


@pytest.mark.parametrize("lines", [[], ["{}", "text"], ['{"resourceProfiles": []}']])
def test_a_file_without_any_run_is_refused(tmp_path: Path, lines: list[str]) -> None:
    path = written(tmp_path / "other.json", lines)

    with pytest.raises(NoRecordingError, match=r"other\.json' holds no OTLP of any run\. Expected what the Collector"):
        read_recording(path, NONE)


@pytest.mark.parametrize(
    ("content", "is_one"),
    [
        ('{"resourceMetrics":[]}', True),
        ('{ "resourceLogs" : []}', True),
        ('{"resourceSpans":[]}', True),
        ('{"resourceMetricsOf":[]}', False),
        ('{"step": 1}', False),
        ("", False),
    ],
)
def test_a_recording_is_known_by_its_first_line(tmp_path: Path, content: str, is_one: bool) -> None:
    path = tmp_path / "file"
    path.write_text(content)

    assert is_recording(path) is is_one


def test_a_folder_and_nothing_are_no_recordings(tmp_path: Path) -> None:
    assert not is_recording(tmp_path)
    assert not is_recording(tmp_path / "none")
