"""What a newer exporter remembers beside its backend's files is not taken for damaged, or for nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from otel_ml.exceptions import VersionError
from otel_ml_exporters import Exporter
from otel_ml_exporters.backends.swanlab import SwanlabExporter
from otel_ml_exporters.backends.tensorboard import TensorBoardExporter
from otel_ml_exporters.records import Params
from tests.contract.stream import run_info, step


@pytest.mark.parametrize(("kind", "newer"), [(SwanlabExporter, 3), (TensorBoardExporter, 2)])
def test_an_exporter_does_not_begin_anew_over_the_memory_of_a_newer_one(
    kind: type[Exporter], newer: int, tmp_path: Path
) -> None:
    run = run_info(tmp_path / "runs" / "digits" / "run", "run")
    exporter = kind()
    exporter.start(run)
    exporter.export([Params(1, 1.0, {"lr": 0.1}), step(2, 0, {"loss": 1.0})])
    exporter.shutdown(5.0, None)
    [memory] = tmp_path.rglob("otel_ml.json")
    memory.write_text(json.dumps(json.loads(memory.read_text()) | {"form": newer, "more": 1}))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    with pytest.raises(VersionError, match=rf"in version {newer} of its form"):
        kind().start(run)

    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
