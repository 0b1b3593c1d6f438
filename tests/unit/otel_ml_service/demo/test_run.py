"""What the demo calls its run."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from otel_ml_service.demo.run import new_run


def test_demos_that_begin_within_one_second_are_runs_of_their_own(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)

    assert len({new_run(tmp_path, now).id for _ in range(20)}) == 20
