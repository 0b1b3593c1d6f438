"""A closed window's values under their published names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from otel_ml.wire.attributes import RESERVED_PREFIX
from otel_ml.wire.reduction import Reduction
from otel_ml_exporters.records import HistogramValue, StepRecord
from otel_ml_service.aggregation.naming import changed, metric_name, rank_name, reduced_name
from otel_ml_service.aggregation.observation import Attributes
from otel_ml_service.aggregation.output import Output
from otel_ml_service.aggregation.piece import Piece
from otel_ml_service.aggregation.reduce import Bins, Value
from otel_ml_service.aggregation.reduced_windows import Folded
from otel_ml_service.aggregation.step_streams import Attempt, StepStream
from otel_ml_service.aggregation.step_window import StepWindow

__all__ = ["Row", "emit_histograms", "emit_values", "row_of"]

_MAX_SHAPES = 65_536
"""Shapes that are remembered as looked at."""


class Row(NamedTuple):
    """Published name → value, the histograms, and the time of the newest record in ns."""

    values: dict[str, float]
    histograms: dict[str, Bins]
    coarse: int
    time_ns: int


def row_of(folded: Folded, stream: StepStream, output: Output) -> Row:
    """Give the values of a window the names that they have in its stream by now."""
    _say_changed_names(folded.pieces, stream, output)
    for piece in folded.pieces:
        stream.reductions.show(piece)
    with_role = all(piece.source.with_role for piece in folded.pieces)
    row = _named(folded, stream, with_role=with_role)
    # Fewer names than values: two have the same one.
    if len(row.values) < sum(len(reduced.values) for _, reduced in folded.results):
        _set_apart(folded, stream, output, with_role=with_role)
        row = _named(folded, stream, with_role=with_role)
    _tell_left_out(row, folded, stream, output, with_role=with_role)
    for name, other in stream.publish(row.values.keys()):
        output.say("name-taken", _shared(name, other, stream))
    return row


def _tell_left_out(row: Row, folded: Folded, stream: StepStream, output: Output, *, with_role: bool) -> None:
    """Add to a row how many records its histograms cannot show, and say so once for each of them."""
    for reduction, reduced in folded.results:
        for value in reduced.left_out:
            counted = value._replace(name=f"{RESERVED_PREFIX}nonfinite/{value.name}")
            name = _published(counted, reduction, stream, with_role=with_role)
            row.values[name] = value.value
            output.say(
                "nonfinite",
                f"Metric {value.name!r} of role {stream.role!r} is NaN or infinite at times: its histogram holds the "
                f"finite values. How many it leaves out of a step is {name}.",
            )


def _named(folded: Folded, stream: StepStream, *, with_role: bool) -> Row:
    row = Row({}, {}, 0, max((piece.newest_ns for piece in folded.pieces), default=0))
    for reduction, reduced in folded.results:
        for value in reduced.values:
            row.values[_published(value, reduction, stream, with_role=with_role)] = value.value
        for bins in reduced.histograms:
            series = metric_name(stream.role, stream.axis, bins.name, bins.attributes, with_role)
            row.histograms[reduced_name(series, reduction, bins.place, _has_own_name(bins.name, stream))] = bins
        row = row._replace(coarse=row.coarse + reduced.coarse)
    return row


def _published(value: Value, reduction: Reduction, stream: StepStream, *, with_role: bool) -> str:
    name, attributes, place, _, rank = value
    series = metric_name(stream.role, stream.axis, name, attributes, with_role)
    if rank is None:
        return reduced_name(series, reduction, place, _has_own_name(name, stream))
    return rank_name(series, reduction, rank, _has_own_name(name, stream))


def _has_own_name(name: str, stream: StepStream) -> bool:
    """Whether each of a metric's values has the name of its reduction."""
    return name in stream.apart or stream.reductions.is_contradicted(name)


def _set_apart(folded: Folded, stream: StepStream, output: Output, *, with_role: bool) -> None:
    """Give a metric that is called as a value of another one is published the name of its reduction, too."""
    metric_of: dict[str, tuple[str, Reduction]] = {}
    attributes_of: dict[str, Attributes] = {}
    for reduction, reduced in folded.results:
        for value in reduced.values:
            published = _published(value, reduction, stream, with_role=with_role)
            one, other = (value.name, reduction), metric_of.setdefault(published, (value.name, reduction))
            if other[0] != value.name:
                # What the other one is called by itself is shorter by what its reduction, rank or attributes append.
                (shorter, _), (longer, own) = sorted((one, other), key=lambda metric: len(metric[0]))
                stream.apart.add(longer)
                output.say("name-taken", _taken(published, longer, shorter, own))
            elif attributes_of.setdefault(published, value.attributes) != value.attributes:
                output.say("name-taken", _met(published, value.name))


def _met(published: str, name: str) -> str:
    return (
        f"Two series of metric {name!r} with different attributes are published as {published!r}: only one of them is "
        "shown. Leave slashes out of the values of attributes."
    )


def _shared(published: str, *streams: StepStream) -> str:
    first, second = (f"axis {stream.axis!r} of role {stream.role!r}" for stream in streams)
    return (
        f"A metric on {first} and one on {second} are both published as {published!r}: backends that have one curve "
        "for a name mix them. Give one of them another name."
    )


def _taken(published: str, longer: str, shorter: str, reduction: Reduction) -> str:
    return (
        f"A value of metric {shorter!r} is published as {published!r}, and there is a metric {longer!r}: that is "
        f"published as {f'{published}/{reduction}'!r}. Give it another name."
    )


def _say_changed_names(pieces: Sequence[Piece], stream: StepStream, output: Output) -> None:
    """Say once where a name cannot stay as it was written."""
    for piece in pieces:
        if piece.shape.number in stream.named:
            continue
        if len(stream.named) >= _MAX_SHAPES:
            stream.named.clear()
        stream.named.add(piece.shape.number)
        for key in piece.shape.series:
            if sentence := changed("/".join((key.name, *chain(*key.attributes)))):
                output.say_first("name-changed", sentence)


def emit_values(
    output: Output,
    attempt: Attempt,
    window: StepWindow,
    row: Row,
    values: Mapping[str, float],
    *,
    writers_missing: int = 0,
    amendment: bool = False,
) -> None:
    """Emit values of a closed step, at the time of its newest record."""
    output.emit(
        StepRecord,
        role=attempt.stream.role,
        axis=attempt.stream.axis,
        step=window.step,
        attempt=attempt.ordinal,
        time=row.time_ns / 1e9,
        values=values,
        writers_missing=writers_missing,
        amendment=amendment,
    )


def emit_histograms(output: Output, stream: StepStream, window: StepWindow, row: Row) -> None:
    """Emit the histograms that hold other records than when they were emitted last."""
    for name, bins in row.histograms.items():
        if window.note_histogram(name, sum(bins.counts)):
            output.emit(
                HistogramValue,
                time=row.time_ns / 1e9,
                name=name,
                axis=stream.axis,
                step=window.step,
                edges=bins.edges,
                counts=bins.counts,
            )
