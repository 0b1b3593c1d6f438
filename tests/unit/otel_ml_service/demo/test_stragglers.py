from __future__ import annotations

from dataclasses import replace

import pytest

from otel_ml_exporters.records import StepRecord
from otel_ml_service.demo.stragglers import straggler
from otel_ml_service.stored_runs.run_history import history
from tests.recorded_run import digits_records


def test_the_slow_rank_its_phase_its_steps_and_its_cost_are_found() -> None:
    found = straggler(history(digits_records(slow_rank=2, slow_steps=range(20, 31))), ranks=4)

    assert found is not None
    assert (found.rank, found.phase, found.first, found.last) == (2, "forward", 20, 30)
    assert found.extra_s == pytest.approx(0.025, rel=0.05)
    assert found.cost_s == pytest.approx(11 * 0.025, rel=0.05)
    assert found.waited_in == "sync"


def test_one_very_slow_step_long_before_does_not_stretch_the_finding() -> None:
    records = digits_records(slow_rank=2, slow_steps=range(20, 31))
    first = next(record for record in records if isinstance(record, StepRecord))
    spike = {**first.values, "time/forward": 0.4, "time/forward/mean": 0.1, "time/forward/argmax": 2.0}

    found = straggler(history([*records, replace(first, values=spike)]), ranks=4)

    assert found is not None
    assert (found.rank, found.phase, found.first, found.last) == (2, "forward", 20, 30)


def test_a_healthy_job_has_no_straggler() -> None:
    found = straggler(history(digits_records(slow_steps=range(0))), ranks=4)

    assert found is None or found.share < 0.05


def test_a_job_that_times_nothing_has_no_straggler() -> None:
    assert straggler(history([StepRecord(1, "trainer", "step", 0, 0, 0.0, {"loss": 1.0})]), ranks=4) is None
