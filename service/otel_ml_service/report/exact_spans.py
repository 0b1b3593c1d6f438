"""Findings with the spans that show them: the service may have had only one of other steps when it told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from otel_ml_exporters.records import JsonValue, Span, Table
from otel_ml_service.report.answer import FINDINGS, Trouble, trouble_of
from otel_ml_service.report.contents import Contents
from otel_ml_service.report.step_view import StepName

__all__ = ["with_exact_spans"]

Known = Mapping[StepName, Sequence[Span]]


def with_exact_spans(run: Contents, known: Known) -> Contents:
    """Return the run with tables of findings that name a span of the finding's own steps, where one is known."""
    exact = {
        name: replace(table, rows=tuple(_exact(run, name, table, tuple(row), known) for row in table.rows))
        for name, table in run.tables.items()
        if name == FINDINGS or name.endswith(f"/{FINDINGS}")
    }
    return replace(run, tables={**run.tables, **exact})


def _exact(run: Contents, name: str, table: Table, row: tuple[JsonValue, ...], known: Known) -> tuple[JsonValue, ...]:
    cells = dict(zip(table.columns, row, strict=False))
    found = trouble_of(run, name.removesuffix(FINDINGS), table, cells)
    if found is None or found.kind != "slow" or _is_exact(found, cells.get("at step")):
        return row
    spans = known.get((found.role, found.axis, found.shows), ())
    shows = (span for span in spans if (span.rank, span.name) == (found.rank, found.phase))
    best = max(shows, key=lambda span: span.end_ns - span.start_ns, default=None)
    if best is None:
        return row
    named = {"span of": best.name, "at step": best.step, "span": best.span_id, "trace": best.trace_id}
    return tuple(named.get(column, cell) for column, cell in cells.items())


def _is_exact(found: Trouble, step: JsonValue) -> bool:
    return isinstance(step, int) and step >= found.since and (found.until is None or step <= found.until)
