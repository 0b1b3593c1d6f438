"""A run whose names move the cursor and turn the direction of what follows, and what its pages make of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from otel_ml_exporters.records import Params, Record, Span, SpanBatch, StepRecord, Table
from otel_ml_service.findings.finding import COLUMNS

__all__ = ["SHOWN", "controls_in", "odd_run", "texts_in"]

ODD = "a\x1b[31mred\x7f\u202egnp"
SHOWN = "a\\x1b[31mred\\x7f\\u202egnp"
SLOW = ("critical", "slow", 1, ODD, 2, 5, 1.0, 0.2, 2.0, ODD, 4, None, None, f"host {ODD}", 0.2)

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def odd_run() -> list[Record]:
    """Return a run in which a role, an axis, a host, a parameter and a timer are called by the same odd name."""
    made: list[Record] = [Params(1, 999.0, {ODD: ODD})]
    spans = [
        Span("0" * 32, f"{step}{rank}".rjust(16, "0"), None, ODD, step * 10**9, step * 10**9 + 10**8 * (1 + rank), ODD,
             rank, ODD, step)
        for step in range(6)
        for rank in range(2)
    ]  # fmt: skip
    for step in range(6):
        made.append(StepRecord(2, ODD, ODD, step, 0, 1000.0 + step, {"loss": 1.0}))
        made.append(StepRecord(3, "trainer", "step", step, 0, 1000.0 + step, {"loss": 1.0}))
    found = Table(5, 1006.0, f"{SHOWN}/{SHOWN}/otel_ml/findings", ODD, 5, COLUMNS[: len(SLOW)], (SLOW,))
    return [replace(one, seq=number) for number, one in enumerate([*made, SpanBatch(4, spans), found], 1)]


def texts_in(value: object) -> Iterator[str]:
    """Yield all texts of what JSON holds, names too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for entry in value.items() for part in entry for text in texts_in(part))
    elif isinstance(value, list):
        yield from (text for one in value for text in texts_in(one))


def controls_in(value: object) -> list[str]:
    """Return the texts that would do something."""
    return [text for text in texts_in(value) if _CONTROLS.search(text)]
