"""Why the configurations say `block_on_overflow: false` (ADR 0010)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collector.blocking_queue import tried

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]


def test_a_queue_that_refuses_goes_on_after_many_senders_gave_up(tmp_path: Path) -> None:
    assert tried(blocks=False, folder=tmp_path).last_arrived


def test_a_queue_that_blocks_is_stuck_after_many_senders_gave_up(tmp_path: Path) -> None:
    assert not tried(blocks=True, folder=tmp_path).last_arrived, (
        "The Collector seems to have lost this defect (collector#15700): take another look at ADR 0010."
    )
