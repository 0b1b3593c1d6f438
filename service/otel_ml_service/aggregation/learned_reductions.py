"""What arrives tells how metrics are reduced: open steps follow it, and a person hears what that changes."""

from __future__ import annotations

from collections.abc import Iterable

from otel_ml.wire.attributes import DEFAULT_AXIS
from otel_ml.wire.reduction import Reduction
from otel_ml_service.aggregation.converted_points import lacking
from otel_ml_service.aggregation.piece import Piece
from otel_ml_service.aggregation.reductions import Declared, News
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.step_streams import Attempt, StepStream

__all__ = ["declare", "learn", "say_lacking", "say_unknown_dimensions"]

_DEFINE = "Call otel_ml.define_metric({name!r}, reduce=…) on every rank."
_SDK = (
    "Of several records an OpenTelemetry SDK sends count, sum, extremes and the buckets of a histogram: "
    "give it buckets, or another ml.reduction."
)


def learn(run: RunState, attempt: Attempt, piece: Piece) -> None:
    """Take what a piece tells of the reductions of its metrics, before it is kept."""
    reductions, stream = attempt.stream.reductions, attempt.stream
    known = reductions.revision
    news = reductions.learn(piece)
    if news:
        _say(run, stream, news, piece.reduction, piece.source.rank)
    if reductions.revision != known:
        run.step_streams.refold(stream.role)


def declare(run: RunState, role: str, rank: int, said: Iterable[tuple[str, Reduction]]) -> None:
    """Take what a writer's `define_metric()` says of names, whether or not it records them."""
    reductions, stream = run.step_streams.of_role(role), run.step_streams.known(role, DEFAULT_AXIS)
    for pattern, reduction in said:
        _say(run, stream, reductions.declare(Declared(pattern, reduction), rank), reduction, rank)
    run.step_streams.refold(role)


def _say(run: RunState, stream: StepStream, news: Iterable[News], reduction: Reduction, rank: int) -> None:
    for one in news:
        if one.contradicts is not None:
            run.output.say("reduction-conflict", _disagreement(stream, one, one.contradicts, str(reduction), rank))
        if one.was is not None:
            run.output.say("reduction-late", _change(stream, one.name, one.was))


def _disagreement(stream: StepStream, news: News, first: tuple[str, int], other: str, rank: int) -> str:
    (used, by), name = first, news.name
    if news.counts is not None:
        return (
            f"Metrics {name!r} of role {stream.role!r} are reduced by {used!r} on rank {by} and by {other!r} on rank "
            f"{rank}; {news.counts!r} counts. Call otel_ml.define_metric({name!r}, reduce=…) alike on all ranks."
        )
    return (
        f"Metric {name!r} of role {stream.role!r} is reduced by {used!r} on rank {by} and by {other!r} on rank "
        f"{rank}; each is published under its own name, such as {name}/{other}. "
        f"Use one reduction everywhere, e.g. otel_ml.define_metric({name!r}, reduce={used!r})."
    )


def _change(stream: StepStream, name: str, was: str) -> str:
    last = max(
        (attempt.last_closed for attempt in stream.attempts.values() if attempt.last_closed is not None), default=0
    )
    return (
        f"Metric {name!r} of role {stream.role!r}: nobody had said of it how it is reduced when {stream.axis} {last} "
        f"closed, so it shows {was!r} up to there, and {str(stream.reductions.used(name))!r} from then on. "
        f"Say it before the first record, e.g. with otel_ml.define_metric({name!r}, reduce=…)."
    )


def say_lacking(run: RunState, stream: StepStream, pieces: Iterable[Piece]) -> None:
    """Say of a step that closes what its writers have not told that their metrics' reductions need."""
    for piece in pieces:
        # A writer of ours sends what it knows to be asked for; another SDK may ask for what OTLP has no place for.
        ours = run.writers[piece.source.number].native
        if not ours or stream.reductions.retells(piece):
            _say_lacking(run, stream, piece, _DEFINE if ours else _SDK)


def say_unknown_dimensions(run: RunState, stream: StepStream, pieces: Iterable[Piece]) -> None:
    """Say of a step that closes in which dimension one of several ranks was to count, and no rank has it."""
    ranks: dict[str, set[int]] = {}
    for piece in pieces:
        if piece.reduction.over is not None:
            ranks.setdefault(piece.reduction.over, set()).add(piece.source.rank)
    several = [dimension for dimension, of_dimension in ranks.items() if len(of_dimension) > 1]
    if not several:
        return
    known = {dimension for writer in run.writers for dimension in writer.source.topology}
    for dimension in several:
        if dimension not in known:
            run.output.say(
                "unknown-dimension",
                f"over={dimension!r} of metrics of role {stream.role!r} is a dimension that no rank has: the values of "
                f"all ranks count. Known: {', '.join(sorted(known)) or 'none'}. Call "
                f"otel_ml.init(topology={{{dimension!r}: (coordinate, size)}}) on each rank, or leave over= out.",
            )


def _say_lacking(run: RunState, stream: StepStream, piece: Piece, advice: str) -> None:
    for part in stream.reductions.parts(piece):
        some = piece if part.rows is None else piece.some(part.rows, part.shape)
        for name, lacks in lacking(some, part.reduction).items():
            run.output.say(
                "reduction-lacks",
                f"Metric {name!r} of role {stream.role!r} is reduced by {str(part.reduction)!r}, and rank "
                f"{piece.source.rank} does not tell {lacks} of its records: they are left out of that. "
                f"{advice.format(name=name)}",
            )
