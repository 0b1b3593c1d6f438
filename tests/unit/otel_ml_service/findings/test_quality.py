"""How good detection is: measured on jobs in which it is known who was slow."""

from __future__ import annotations

from collections import Counter

import pytest

from otel_ml_service.findings.detector import Detector
from otel_ml_service.findings.step_timers import StepTimers
from tests.unit.otel_ml_service.findings.scenarios import KINDS, PHASES, WITHIN, Scenario, scenario

SCENARIOS = 204


def begun(job: Scenario) -> list[tuple[int, str, int]]:
    """Return (rank, phase, step at which it was told) of every finding that begins."""
    detector, ranks, found, known = Detector(), tuple(range(job.ranks)), [], set()
    for step, seconds in enumerate(job.steps()):
        for finding in detector.step(step, StepTimers(ranks, PHASES, seconds)):
            key = (finding.rank, finding.phase)
            if key not in known:
                found.append((*key, step))
            known.discard(key) if finding.is_over else known.add(key)
    return found


def scored(job: Scenario) -> Counter[str]:
    """Count what was found in time, what was missed, and what was found though nobody was slow."""
    found = begun(job)
    counts: Counter[str] = Counter()
    for slow in job.injected:
        in_time = [
            (rank, phase, step)
            for rank, phase, step in found
            if (rank, phase) == (slow.rank, slow.phase) and slow.first <= step <= slow.onset + WITHIN
        ]
        counts["hit" if in_time else "missed"] += 1
    counts["wrong"] = sum(
        not any(
            (rank, phase) == (slow.rank, slow.phase) and slow.first <= step < slow.end + WITHIN for slow in job.injected
        )
        for rank, phase, step in found
    )
    return counts


@pytest.mark.feature("M7", "better", "found from timers alone, F1 ≥ 0.95 over 204 seeded jobs, without a collective")
@pytest.mark.feature("M9", "better", "two levels with hysteresis instead of one score")
def test_slow_downs_of_a_tenth_and_more_are_found_within_ten_steps_and_little_else() -> None:
    results = {seed: scored(scenario(seed)) for seed in range(SCENARIOS)}
    total = sum(results.values(), Counter())
    by_kind = {
        kind: sum((results[seed] for seed in results if scenario(seed).kind == kind), Counter()) for kind in KINDS
    }

    f1 = 2 * total["hit"] / (2 * total["hit"] + total["missed"] + total["wrong"])

    assert total["hit"] + total["missed"] >= 200
    assert f1 >= 0.95, (f1, by_kind)
    for kind, counts in by_kind.items():
        assert counts["missed"] <= 0.1 * max(counts["hit"], 1), (kind, counts)
        assert counts["wrong"] <= 2, (kind, counts)
