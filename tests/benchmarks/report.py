"""The generated parts of `docs/performance.md` and of the README: from the recorded figures, never typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

from tests.benchmarks.explanations import told
from tests.benchmarks.figures import Curve, Figure
from tests.benchmarks.profiles import NAMES
from tests.benchmarks.recorded import Part, Recorded
from tests.benchmarks.scale import REFERENCE_US, SDK, scaled
from tests.benchmarks.targets import TARGETS, Limit, Target, plain, said, said_plainly, verdict

__all__ = ["SECTIONS", "figures_table", "image_of", "table", "target_table", "warning"]

IMAGES = "images/performance"


@cache
def recorded() -> Recorded:
    """Return all that this page shows: what was measured on a GPU has a page of its own."""
    return Recorded({name: part for name, part in Recorded.read().parts.items() if name != "gpu"})


def figures_of(part: str) -> Mapping[str, Figure]:
    """Return the figures of a part; none where it was never measured."""
    found = recorded().parts.get(part)
    return found.found.figures if found is not None else {}


def image_of(part: str, curve: str) -> str:
    """Return the file name of a curve's plot."""
    return f"{part}-{curve}.svg"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def target_table(found: Recorded, targets: Sequence[Target] = TARGETS) -> str:
    """Return targets, one a row: measured, target and reference side by side."""
    return table(
        ("what", "target", "measured", "scaled", "reference", "verdict"),
        [target_row(target, found) for target in targets],
    )


def target_row(target: Target, found: Recorded) -> tuple[str, ...]:
    figures = found.figures
    measured = "; ".join(said(figures.get(limit.figure), limit.label) for limit in target.limits)
    beside = [f"{label} {said(figures.get(name))}" for name, label in target.beside if figures.get(name)]
    reference = "; ".join([*beside, *filter(None, [target.reference])])
    return target.what, target.target, measured, scaled_row(target, figures), reference, verdict(target, figures)


def scaled_row(target: Target, figures: Mapping[str, Figure]) -> str:
    """Return the row's absolute figures as on the machine where the targets were set."""
    found = [
        said(to, limit.label)
        for limit in target.limits
        if limit.limit and (figure := figures.get(limit.figure)) and (to := scaled(figure, figures))
    ]
    return "; ".join(found)


def targets() -> str:
    return target_table(recorded())


def missed() -> str:
    """Return what is behind its target: measured, asked for, scaled, and why, with the profile that shows it."""
    figures = recorded().figures
    lines = []
    for target in TARGETS:
        behind = [limit for limit in target.limits if (found := figures.get(limit.figure)) and not limit.holds(found)]
        if behind:
            head = table(("", "measured", "target", "", "scaled"), [missed_row(limit, figures) for limit in behind])
            why = list(dict.fromkeys(filter(None, (told(limit.figure, figures) for limit in behind))))
            lines.append("\n\n".join([f"### {target.what}", head, *why, *profile_of(target)]))
    return "\n\n".join([scale_of(figures), *lines]) if lines else "Every target that was measured is met."


def missed_row(limit: Limit, figures: Mapping[str, Figure]) -> tuple[str, ...]:
    """Return a missed figure, its target, how far it is from it, and whether it would be met when scaled."""
    found = figures[limit.figure]
    asked = "" if limit.limit is None else f"{limit.side} {said(Figure(limit.limit, found.unit))}"
    to = scaled(found, figures)
    if to is None:
        return limit.label, said(found), asked, times(limit, found), ""
    verdict_then = "within the target" if limit.holds(to) else times(limit, to)
    return limit.label, said(found), asked, times(limit, found), f"{said(to)}: {verdict_then}"


def scale_of(figures: Mapping[str, Figure]) -> str:
    """Return by what figures are scaled; it is the speed of the interpreter, and says nothing of disks."""
    return (
        f"The SDK's `Histogram.record` takes {said(figures.get(SDK))} here, and took {REFERENCE_US} µs where the "
        "targets were set: times of the interpreter are scaled by that. Disks and memory have their own speed."
    )


def profile_of(target: Target) -> list[str]:
    """Return the link to the flame graph, where it was drawn."""
    drawn = figures_of("profiles").get(target.profile)
    return [f"Profile: [{target.profile}]({IMAGES}/{target.profile}.svg)."] if drawn is not None and drawn.value else []


def times(limit: Limit, figure: Figure) -> str:
    """Return how far a figure is from its limit."""
    value = figure.value
    assert value is not None
    if not limit.limit or value <= 0:
        return f"asked for: {limit.limit:g}"
    if limit.side == "≥":
        return f"1/{plain(limit.limit / value)} of the target"
    return f"{plain(value / limit.limit)} × the limit"


def conditions() -> str:
    """Return on what, when and how long it was measured; and whether that means anything."""
    parts = recorded().parts
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name, part in parts.items():
        groups.setdefault(tuple(part.machine.items()), []).append(name)
    lines = [warning(part) for part in parts.values() if warning(part)]
    text = [f"!!! warning\n    {line}\n" for line in dict.fromkeys(lines)]
    for machine, names in groups.items():
        rows: list[tuple[str, ...]] = [(name, value) for name, value in machine]
        dates = sorted({parts[name].date for name in names})
        sizes = sorted({parts[name].size for name in names})
        seconds = sum(parts[name].seconds for name in names)
        rows += [("measured", " … ".join(dict.fromkeys((dates[0], dates[-1])))), ("size", ", ".join(sizes))]
        rows += [("took", f"{seconds:.0f} s"), ("parts", ", ".join(names))]
        text.append(table(("", ""), rows))
    return "\n\n".join(text)


def warning(part: Part) -> str:
    """Return what a reader must know before any number, or nothing."""
    if not (part.size == "quick" or part.is_shared):
        return ""
    run = "a quick run" if part.size == "quick" else "a run"
    where = " on a shared machine" if part.is_shared else ""
    return f"These figures are of {run}{where}: they show that the harness works, not how quick otel_ml is."


def calls() -> str:
    """Return the table of calls: hot and cold, ours and the SDK's."""
    return table_of_calls("calls")


def only_python() -> str:
    """Return the same without the compiled part."""
    return table_of_calls("only_python")


def table_of_calls(name: str) -> str:
    """Return the table of a part that measured calls."""
    part = figures_of(name)
    names = list(dict.fromkeys(name.partition(".")[0] for name in part))
    rows = [
        (
            f"`{name}`",
            *(said(part[f"{name}.{state}{side}"]) for state in ("hot", "cold") for side in ("", ".sdk", ".ratio")),
        )
        for name in names
    ]
    return table(("call", "hot", "SDK", "ratio", "cold", "SDK", "ratio"), rows)


def peers() -> str:
    """Return the table of what programs log with today."""
    found, collectives = figures_of("peers"), figures_of("collectives")
    names = list(dict.fromkeys(name.rpartition(".")[0] for name in found))
    rows = [(name, *(said(found[f"{name}.{what}"]) for what in ("call", "otel_ml", "ratio"))) for name in names]
    rows += [
        (
            f"`all_reduce` a key, gloo, {ranks} ranks",
            *(said(collectives[f"{ranks}.{what}"]) for what in ("all_reduce", "otel_ml", "ratio")),
        )
        for ranks in dict.fromkeys(name.partition(".")[0] for name in collectives)
    ]
    plot = f"![Logging ten values]({IMAGES}/{image_of('peers', 'log_10')})"
    return table(("10 values", "it", "`otel_ml.log`", "ratio"), rows) + f"\n\n{plot}"


def compat() -> str:
    """Return the table of calls of programs that changed only their import."""
    found = figures_of("compat")
    names = dict.fromkeys(name.rpartition(".")[0] for name in found)
    rows = [(name, *(said(found[f"{name}.{what}"]) for what in ("call", "compat", "ratio"))) for name in names]
    return table(("call", "the original", "`otel_ml.compat`", "ratio"), rows) if rows else "Not yet run."


def curves() -> str:
    """Return every plot but that of the peers, with what its ends are."""
    shown = [
        f"![{curve.title}]({IMAGES}/{image_of(name, key)})\n\n{ends(curve)}"
        for name, part in recorded().parts.items()
        for key, curve in part.found.curves.items()
        if name != "peers"
    ]
    return "\n\n".join(shown)


def ends(curve: Curve) -> str:
    """Return the first and the last point of each line."""
    told = []
    for label, points in curve.lines.items():
        (x, y), (last_x, last_y) = points[0], points[-1]
        to = f" at {plain(x)} → {plain(last_y)} at {plain(last_x)}" if len(points) > 1 else ""
        told.append(f"{label} {plain(y)}{to}")
    return f"{curve.title}, {curve.y}: {'; '.join(told)}."


def profiles() -> str:
    drawn = figures_of("profiles")
    shown = {name: what for name, what in NAMES.items() if name in drawn and drawn[name].value}
    return "\n".join(f"- [{what}]({IMAGES}/{name}.svg)" for name, what in shown.items())


def everything() -> str:
    """Return every figure of every part."""
    text = []
    for name, part in recorded().parts.items():
        text.append(f"### {name}\n\n{figures_table(part)}")
    return "\n\n".join(text)


def figures_table(part: Part) -> str:
    """Return every figure of a part."""
    rows = [
        (f"`{key}`", said(figure) if figure.value is not None else f"not measured: {figure.absent}", figure.note)
        for key, figure in part.found.figures.items()
    ]
    return table(("figure", "value", ""), rows)


NUMBERS: tuple[tuple[str, tuple[tuple[str, str], ...], str, str], ...] = (
    (
        "recording a value, on the training thread",
        (("calls/record.hot", ""),),
        "calls/record.hot.sdk",
        "OpenTelemetry SDK",
    ),
    ("logging ten values", (("calls/log_10.hot", ""),), "peers/wandb (offline).call", "`wandb.log`, offline"),
    (
        "a step of 100 metrics and 20 timers, caches cold",
        (("cold_step/p50", "p50"), ("cold_step/p99", "p99")),
        "cold_step/sdk.p50",
        "OpenTelemetry SDK p50",
    ),
    (
        "DDP training, 4 ranks and the service on {cores} cores, steps of 50 ms: slower by",
        (("training_loop/50ms.wall.slowdown", ""), ("training_loop/50ms.training_thread", "in the calls of a step")),
        "",
        "torchforge asks for < 5 %",
    ),
    (
        "the service for a minute: durable, reduced, as rows",
        (
            ("throughput/own.rate", ""),
            ("throughput/own.lost", "lost"),
            ("throughput/beside.own.ratio", "beside the Collector"),
        ),
        "throughput/beside.own.collector",
        "OpenTelemetry Collector, to a file, in turns on the same cores",
    ),
)
"""The five that matter: what, figures with their labels, the figure beside them, and whose that is."""


def numbers() -> str:
    """Return the README's table."""
    found = recorded()
    cores = next((part.machine["cores"] for part in found.parts.values()), "as many")
    rows = [
        (
            what.format(cores=cores),
            "; ".join(said_plainly(found.figures.get(name), label) for name, label in figures),
            f"{whose} {said_plainly(found.figures.get(beside))}" if beside else whose,
        )
        for what, figures, beside, whose in NUMBERS
    ]
    warnings = dict.fromkeys(filter(None, map(warning, found.parts.values())))
    return "\n\n".join([*warnings, table(("", "otel_ml", "others"), rows)])


SECTIONS: Mapping[str, Callable[[], str]] = {
    "performance-conditions": conditions,
    "performance-targets": targets,
    "performance-missed": missed,
    "performance-calls": calls,
    "performance-only-python": only_python,
    "performance-peers": peers,
    "performance-compat": compat,
    "performance-curves": curves,
    "performance-profiles": profiles,
    "performance-everything": everything,
    "performance-numbers": numbers,
}
"""Name of a generated part → what writes it."""
