"""`otel-ml trace RUN`: some steps of a run as a file for ui.perfetto.dev."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from otel_ml.exceptions import ConfigError, OtelMLError
from otel_ml.quantities import seconds, size
from otel_ml.wire.attributes import DEFAULT_AXIS
from otel_ml_service.cli.parameters import STEPS, dir_option, run_argument
from otel_ml_service.cli.screen import Screen, screen
from otel_ml_service.cli.whole_file import whole_file
from otel_ml_service.findings.wording import plural
from otel_ml_service.perfetto.selection import Found, Steps, gather
from otel_ml_service.perfetto.trace_file import Written, write_trace
from otel_ml_service.stored_runs.read_spans import records_and_spans
from otel_ml_service.stored_runs.run_folders import RunFolder, find

__all__ = ["TraceError", "command"]

_MOST = 2_000_000
"""Spans of a trace for which no steps were chosen: about as many as ui.perfetto.dev shows with 4 GB of memory."""


class TraceError(OtelMLError):
    """There is nothing to write, or too much, or no place for it."""

    slug = "trace-not-written"


@click.command(
    "trace", epilog="Examples: otel-ml trace latest --steps 48-52 · otel-ml trace latest --role generator -o g.pftrace"
)
@run_argument(required=False)
@dir_option
@click.option("--steps", type=STEPS, help="5, or 5-9; all by default, as far as there are not too many spans.")
@click.option("--axis", default=DEFAULT_AXIS, show_default=True, help="Whose steps these are, such as rollout.")
@click.option("--role", help="Only the spans and metrics of this role.")
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write; by default trace-48-52.perfetto-trace in the run's folder.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def command(
    run: str,
    base: Path,
    steps: tuple[int, int] | None,
    axis: str,
    role: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Write what every rank of RUN (the newest by default) did in some steps, for ui.perfetto.dev.

    A track for each role, rank and thread, the published metrics as counters, arrows where a span led to another.
    """
    output = screen()
    folder = find(run, base)
    # A last step of None means all.
    first, last = steps or (0, None)
    chosen = Steps(axis, first, last, role)
    found = gather(lambda: records_and_spans(folder), chosen, lambda count: _check(folder, chosen, count))
    try:
        _require(folder, chosen, found)
        file = out or folder.path / _name(chosen)
        written = _write(file, found, chosen)
    finally:
        # Spans are in a temporary file while the trace is put together.
        found.spans.close()
    _say(output, file, found, written)
    if as_json:
        click.echo(json.dumps(_described(folder, chosen, file, found, written)))
    else:
        output.line(str(file))


def _check(folder: RunFolder, steps: Steps, count: int) -> None:
    if steps.is_all and count > _MOST:
        raise TraceError(
            f"Run {folder.id} has more than {_MOST:,} spans, which is more than ui.perfetto.dev can show. Choose some "
            f"steps: otel-ml trace {folder.id} --steps 0-9"
        )


def _require(folder: RunFolder, steps: Steps, found: Found) -> None:
    # A role or an axis that is misspelled is told as such, before steps that have nothing.
    if steps.role is not None and steps.role not in found.roles:
        raise ConfigError(
            f"Run {folder.id} has no role {steps.role!r}. Its roles are: {', '.join(sorted(found.roles)) or 'none'}.",
            slug="trace-not-written",
        )
    there = ", ".join(f"{first}-{last} of {axis!r}" for axis, (first, last) in sorted(found.axes.items()))
    if steps.axis not in {DEFAULT_AXIS, *found.axes}:
        raise ConfigError(
            f"Run {folder.id} has no steps of the axis {steps.axis!r}. It has the steps {there or 'of none'}.",
            slug="trace-not-written",
        )
    if not found.is_empty:
        return
    if steps.is_all or not there:
        raise TraceError(f"Run {folder.id} has no spans and no metrics yet, so there is nothing to show.")
    last = "" if steps.last == steps.first else f"-{steps.last}"
    raise TraceError(
        f"Run {folder.id} has nothing at {steps.first}{last} of the axis {steps.axis!r}. It has the steps {there}."
    )


def _name(steps: Steps) -> str:
    axis = "" if steps.axis == DEFAULT_AXIS else f"-{re.sub(r'[^A-Za-z0-9_.]+', '_', steps.axis)}"
    # Whatever a role or an axis is called, the file stays in the run's folder.
    role = "" if steps.role is None else f"-{re.sub(r'[^A-Za-z0-9_.]+', '_', steps.role)}"
    which = "" if steps.is_all else f"-{steps.first}" + ("" if steps.last == steps.first else f"-{steps.last}")
    return f"trace{role}{axis}{which}.perfetto-trace"


def _write(file: Path, found: Found, steps: Steps) -> Written:
    try:
        with whole_file(file) as place, place.open("wb", buffering=1 << 20) as content:
            return write_trace(found, steps, content)
    except OSError as error:
        raise TraceError(
            f"The trace cannot be written to {str(file)!r}: {error.strerror or error}. Write it elsewhere with --out."
        ) from error


def _described(run: RunFolder, steps: Steps, file: Path, found: Found, written: Written) -> dict[str, object]:
    return {
        "file": str(file),
        "bytes": file.stat().st_size,
        "id": run.id,
        "axis": steps.axis,
        "role": steps.role,
        "spans": written.spans,
        "values": written.values,
        "arrows": written.flows,
        "arrows_left_out": written.backward,
        "clocks_moved": written.clocks.moved,
        "spans_left_out": found.without_time,
    }


def _say(output: Screen, file: Path, found: Found, written: Written) -> None:
    if not written.spans:
        output.note("there are no spans of these steps, only metrics: no timer ran, or OTEL_ML_TRACES was off")
    moved, most_ns, fit = written.clocks
    if moved:
        clocks = "the clock of 1 rank was" if moved == 1 else f"the clocks of {moved:,} ranks were"
        by = seconds(most_ns / 1e9)
        output.note(f"{clocks} moved, by up to {by}, so that nothing ends before what led to it begins")
    if not fit:
        output.note(
            "clocks are as hosts have them: no shift of each fits all links, as where one was set; choose fewer --steps"
        )
    if written.backward:
        output.note(
            f"without {plural(written.backward, 'arrow')} to what did not begin after its cause, by the hosts' clocks"
        )
    if found.without_time:
        output.note(f"without {plural(found.without_time, 'span')} whose times are not times")
    counts = f"{plural(written.spans, 'span')}, {plural(written.values, 'value')}, {plural(written.flows, 'arrow')}"
    output.note(f"{counts}, {size(file.stat().st_size)}; open it in https://ui.perfetto.dev, which uploads nothing")
