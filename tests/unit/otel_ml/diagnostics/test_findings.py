"""Watching for findings where nothing can be found, and what is refused."""

from __future__ import annotations

import pytest

from otel_ml.diagnostics import findings
from otel_ml.exceptions import ConfigError
from otel_ml.testing import capture


def test_watching_without_a_run_finds_nothing_and_ends() -> None:
    told: list[findings.Finding] = []

    with findings.watch(told.append, every_s=0.01):
        pass

    assert told == []


def test_watching_a_run_whose_service_says_nothing_of_findings_ends_too() -> None:
    told: list[findings.Finding] = []

    with capture(), findings.watch(told.append, every_s=0.01) as watch:
        watch.stop()

    assert told == []


def test_the_same_finding_in_the_next_run_of_a_process_is_told_again() -> None:
    told: list[findings.Finding] = []
    slow = findings.Finding("slow", "trainer", 1, "work", "warning", "step", 0, 4, 9, False, 0.5, 0.01, 0.05)

    with findings.watch(told.append) as watch:
        for run_id in ("the first", "the first", "the second"):
            watch._tell(run_id, [slow])

    assert told == [slow, slow]


@pytest.mark.parametrize("every_s", [0.0, -1.0, float("nan")])
def test_a_pause_that_is_none_is_refused(every_s: float) -> None:
    with pytest.raises(ConfigError, match="Expected seconds above 0"):
        findings.watch(print, every_s=every_s)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'print'\. Expected a function of one finding"):
        findings.watch("print")  # type: ignore[arg-type]
