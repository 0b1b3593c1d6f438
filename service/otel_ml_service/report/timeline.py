"""What every worker did in the last steps, a row a worker, from the spans of its timers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from otel_ml.quantities import seconds
from otel_ml_exporters.records import Span
from otel_ml_service.findings.causal_order import in_causal_order
from otel_ml_service.report.curves import COLORS
from otel_ml_service.report.markup import Markup, joined, tag

__all__ = ["timeline"]

_STEPS = 4
_WORKERS = 32
_SPANS = 3000
_WIDTH, _LABEL, _ROW, _DEEPEST = 900, 110, 26, 3


def timeline(spans: Iterable[Span]) -> Markup:
    """Return a picture for each axis of its last four steps that most workers were in; nothing without steps."""
    axes: dict[str, list[Span]] = {}
    for span in in_causal_order(tuple(spans)):
        if span.step is not None and span.axis is not None:
            axes.setdefault(span.axis, []).append(span)
    ordered = sorted(axes.items(), key=lambda entry: -len(entry[1]))
    titled = (joined([tag("h3", f"Axis {axis}"), _picture(found)]) for axis, found in ordered)
    return joined(titled) if len(ordered) > 1 else joined(map(_picture, axes.values()))


def _picture(timed: Sequence[Span]) -> Markup:
    last = _last_steps(timed)
    every = sorted({(span.role, span.rank) for span in last})
    workers = every[:_WORKERS]
    # Whose, and then how many: of thousands of workers the first spans are of the first step alone.
    shown = [span for span in last if (span.role, span.rank) in workers][:_SPANS]
    begin, end = min(span.start_ns for span in shown), max(span.end_ns for span in shown)
    in_order = sorted(shown, key=lambda one: (one.role, one.rank, one.start_ns, -one.end_ns))
    names = list(dict.fromkeys(span.name for span in in_order))  # colors as in the view of a step
    rows = [
        _row(number, role, rank, [span for span in shown if (span.role, span.rank) == (role, rank)], names, begin, end)
        for number, (role, rank) in enumerate(workers)
    ]
    height = _ROW * len(workers) + 18
    scale = tag("text", seconds((end - begin) / 1e9), x=_WIDTH, y=height - 3, text_anchor="end")
    picture = tag("svg", *rows, scale, viewBox=f"0 0 {_WIDTH} {height}", role="img", aria_label="workers over time")
    keys = (tag("span", name, class_=f"key c{number % COLORS}") for number, name in enumerate(names[: 2 * COLORS]))
    left_out = len(every) - len(workers)
    note = [tag("p", f"{left_out:,} workers are not drawn.", class_="quiet")] if left_out else []
    return tag("div", tag("div", picture, class_="wide timeline"), tag("p", joined(keys), class_="legend"), *note)


def _last_steps(spans: Sequence[Span]) -> list[Span]:
    workers: dict[int, set[tuple[str, int]]] = {}
    for span in spans:
        if span.step is not None:
            workers.setdefault(span.step, set()).add((span.role, span.rank))
    # Of the newest steps the spans of some workers have not arrived yet.
    most = max(map(len, workers.values()))
    steps = sorted(step for step, found in workers.items() if len(found) == most)[-_STEPS:]
    return [span for span in spans if span.step in steps]


def _row(
    number: int, role: str, rank: int, spans: Sequence[Span], names: Sequence[str], begin: int, end: int
) -> Markup:
    top = number * _ROW
    label = tag("text", f"{role[:10]} {rank}", x=_LABEL - 6, y=top + 17, text_anchor="end")
    ordered = sorted(spans, key=lambda span: (span.start_ns, -span.end_ns))
    boxes, open_until = [], list[int]()
    pixel_ns = (end - begin) / (_WIDTH - _LABEL)  # what overlaps by less follows, it is not inside
    for span in ordered:
        open_until = [until for until in open_until if until - span.start_ns > pixel_ns]
        depth = min(len(open_until), _DEEPEST)
        open_until.append(span.end_ns)
        left = _LABEL + (span.start_ns - begin) / max(end - begin, 1) * (_WIDTH - _LABEL)
        width = max((span.end_ns - span.start_ns) / max(end - begin, 1) * (_WIDTH - _LABEL), 0.6)
        said = f"{span.name}: {seconds((span.end_ns - span.start_ns) / 1e9)}, step {span.step}, rank {rank}"
        place = {"x": f"{left:.1f}", "y": top + 3 + 5 * depth, "width": f"{width:.1f}"}
        # A timer inside of others begins 5 lower and has the same lower edge, so that each stays to be seen.
        height, color = max(_ROW - 6 - 5 * depth, 4), names.index(span.name) % COLORS
        boxes.append(tag("rect", tag("title", said), **place, height=height, class_=f"c{color}"))
    return joined([label, *boxes])
