"""A job of a trainer and generators, which count their steps by themselves."""

from __future__ import annotations

from dataclasses import replace

from otel_ml_exporters.records import Record, StepRecord, Table
from otel_ml_service.findings.finding import COLUMNS

__all__ = ["job_of_two_roles"]

SLOW = ("critical", "slow", 1, "generate", 60, 69, 1.0, 0.2, 2.0, None, None, None, None, "rank 1", 0.2)


def job_of_two_roles() -> list[Record]:
    """Return a trainer that takes 2 s a step, beside generators that take 1 s a rollout."""
    rows: list[Record] = []
    for step in range(60):
        versions = {"generator/0": float(max(step - 1, 0)), "generator/1": 3.0 if step >= 50 else float(step)}
        values = {f"consumed/version/{who}": version for who, version in versions.items()}
        values |= {f"consumed/samples/{who}": 16.0 for who in versions}
        values |= {f"reward/{who}": 0.01 * version for who, version in versions.items()}
        values |= {"reward": 0.5, "reward/environment/math": 0.7, "reward/environment/code": 0.3, "time/forward": 1.5}
        rows.append(StepRecord(0, "trainer", "step", step, 0, 1000.0 + 2 * step, values))
    for rollout in range(110):
        spent = {"generator/rollout/time/generate": 0.9, "generator/rollout/time/exposed/generate": 0.9}
        spent["generator/rollout/time/exposed/generate/rank"] = 1.0
        rows.append(StepRecord(0, "generator", "rollout", rollout, 0, 1000.5 + rollout, spent))
    rows.append(Table(0, 1200.0, "generator/rollout/otel_ml/findings", "rollout", 109, COLUMNS[: len(SLOW)], (SLOW,)))
    return [replace(row, seq=number) for number, row in enumerate(rows, 1)]
