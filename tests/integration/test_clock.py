"""A host whose clock is not the service's: the run says how far it is, and its account balances."""

from __future__ import annotations

from pathlib import Path

import pytest

import otel_ml
from tests.integration.worker_process import environment, run


@pytest.mark.parametrize("ahead_s", [0, 90, -3600])
def test_the_offset_of_a_hosts_clock_is_in_the_run_with_its_bound(tmp_path: Path, ahead_s: int) -> None:
    program = f"""
        import time
        of_the_service = time.time_ns
        time.time_ns = lambda: of_the_service() + {ahead_s} * 10**9  # what a program is told on a host set so

        import otel_ml
        from otel_ml._internal.lifecycle import clock_watch

        clock_watch.boot_id = lambda: "a machine of its own"
        clock_watch.FIRST_S = 0.0
        asked = []
        record = clock_watch.ClockWatch._record
        clock_watch.ClockWatch._record = lambda *of: (record(*of), asked.append(1))  # counts the looks, and takes each
        with otel_ml.init("clock", exporters="jsonl") as run:
            otel_ml.set_step(1)
            otel_ml.log({{"loss": 0.5}})
            while not asked:
                time.sleep(0.05)  # between two looks
        print(run.dir)
    """

    output, errors = run(program, environment(tmp_path), tmp_path)

    rows = otel_ml.read(Path(output.strip()))
    [offset], [bound] = rows["otel_ml/clock/offset/rank_0"][1], rows["otel_ml/clock/bound/rank_0"][1]
    assert 0.0 <= bound < 1.0
    assert abs(offset + ahead_s) <= bound + 1e-3, "the service's clock is behind where the host's is ahead"
    assert "1 value recorded, 1 delivered, 0 lost" in errors
