from __future__ import annotations

import mmap
from pathlib import Path
from typing import cast

import pytest

from otel_ml_service.live_runs.unreadable_requests import UnreadableRequests
from otel_ml_service.telemetry import Telemetry

MIB = 2**20

ALMOST_ALL = cast("bytes", mmap.mmap(-1, 1023 * MIB))
"""Takes no memory as long as nobody reads it."""


def test_what_could_not_be_written_takes_no_room_from_what_can(tmp_path: Path) -> None:
    telemetry = Telemetry()
    requests = UnreadableRequests(tmp_path, telemetry)
    (tmp_path / "1-metrics.part").mkdir()
    with pytest.raises(IsADirectoryError):
        requests.keep(1, "metrics", ALMOST_ALL)

    requests.keep(2, "metrics", bytes(2 * MIB))

    assert [len(kept.body) for kept in requests.kept()] == [2 * MIB]
    assert telemetry.value("dropped", reason="its run's files cannot be used") == 0
