"""The parts of a run's report, each empty where the run has nothing of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

from otel_ml.flatten import leaves
from otel_ml.quantities import figure, percent, seconds, size
from otel_ml.redaction import redacted_values
from otel_ml.wire.attributes import DEFAULT_AXIS, TIME_AXIS
from otel_ml_exporters.records import Artifact, Image, JsonValue, Table, Text
from otel_ml_service.findings.whose_account import of_rank_text
from otel_ml_service.report.contents import Contents
from otel_ml_service.report.heat_map import heat_map
from otel_ml_service.report.markup import Amount, Markup, cell_table, details, joined, picture, section, tag
from otel_ml_service.report.timeline import timeline
from otel_ml_service.report.timing import Timer, timers

__all__ = ["artifacts", "facts", "findings", "images", "params", "tables", "texts", "timing", "workers"]

_LEFT_OUT = ("trainer", "unknown_service", DEFAULT_AXIS)
"""Roles and axis that names do without."""
_FIRST = ("level", "kind", "place", "ranks", "phase", "given", "amount", "since", "until", "s per step", "s in all",
          "slowdown", "s saved per step", "others wait", "times", "every")  # fmt: skip
"""Columns of findings, as people read them; those that name spans come last."""
_FINDINGS, _HEAT = "otel_ml/findings", "otel_ml/stragglers"
_ROWS = 100
"""Newest rows of a table that are shown."""
_CELL = 2_000
"""Characters of a cell."""
_TEXT = 20_000
_IMAGES = 48
_IMAGE_BYTES = 16 * 2**20
"""Of all images together: a page has to open on a phone."""


def facts(run: Contents) -> Markup:
    """Return how the run stands, in words."""
    read = run.history
    began = "" if read.began is None else f"{datetime.fromtimestamp(read.began, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    # Name, value, and the class of its color; what is empty is left out below.
    entries: list[tuple[str, str, str]] = [
        ("status", read.status, read.status),
        ("began", began, ""),
        ("duration", seconds(read.seconds), ""),
        ("ranks", _ranks(run), ""),
        ("ranks that were not heard of", f"{run.unheard:,}" if run.unheard else "", "warning"),
        ("attempts", str(len(run.attempts)) if run.attempts else "", ""),
        *((name, f"{count:,}", "") for name, count in _steps(run)),
        ("steps done again", f"{run.redone:,}" if run.redone else "", ""),
        ("steps with a rank missing", f"{run.missing:,}", "warning" if run.missing else ""),
        (
            "values lost",
            "not known" if run.lost is None else f"{run.lost:,}",
            "failed" if run.lost else "",
        ),
        *((f"values not in {name}", f"{count:,}", "failed") for name, count in run.not_taken.items()),
        ("values amended", f"{read.amendments:,}", ""),
    ]
    shown = [
        tag("div", tag("span", name), tag("b", value, class_=kind or None)) for name, value, kind in entries if value
    ]
    return tag("div", *shown, class_="facts")


def _ranks(run: Contents) -> str:
    if len(run.roles) > 1:
        return ", ".join(f"{count} {role}" for role, count in run.roles.items())
    return "" if run.ranks is None else str(run.ranks)


def _steps(run: Contents) -> Iterable[tuple[str, int]]:
    """Yield how many steps each role did on each axis; none that are seconds, unless there are no others."""
    axes = {place: len(done) for place, done in run.steps.items() if place[1] != TIME_AXIS}
    for (role, axis), count in axes.items():
        place = "/".join(part for part in (role, axis) if part not in _LEFT_OUT)
        yield f"steps of {place}" if place else "steps", count
    if not axes:
        yield "steps", 0


def params(run: Contents) -> Markup:
    """Return hyper-parameters and final values."""
    # A worker has hidden secrets already; a run may be of another program.
    given = leaves(redacted_values(run.history.params))
    # `sorted` is stable: the user's keep their order.
    theirs_first = sorted(given, key=lambda leaf: leaf[0].startswith("otel_ml."))
    shown = cell_table(("parameter", "value"), ((name, _shown(value)) for name, value in theirs_first))
    finals = {name: value for name, value in run.history.summary.items() if not name.startswith("otel_ml/")}
    summary = cell_table(("name", "value"), finals.items())
    return joined([section("Final values", summary), section("Parameters", shown)])


def _shown(value: object) -> str:
    """Return a parameter as it was given, not rounded."""
    return _shortened(str(value))


def timing(run: Contents) -> Markup:
    """Return the timers of each role and axis, the longest first, with their share of its own step."""
    of_place: dict[str, list[Timer]] = {}
    for timer in timers(run.history):
        of_place.setdefault(timer.place, []).append(timer)
    places = sorted(of_place, key=lambda place: (place != "", place))
    parts: list[str] = []
    for place in places:
        whose = place.removesuffix("/").replace("/", ", ") or "trainer"
        found = of_place[place]
        parts += [tag("h3", whose) if len(places) > 1 else "", _whose_shares(run.id, found), _timer_table(found)]
    return section("Where the time goes", *parts)


def _whose_shares(run: str, found: Sequence[Timer]) -> Markup:
    """Return whose account the shares are of, where they are not of all ranks."""
    of_rank = next((timer.of_rank for timer in found if timer.of_rank is not None), None)
    if of_rank is None:
        return Markup("")
    return tag("p", f"Shares are {of_rank_text(of_rank, run, max(timer.last for timer in found))}", class_="quiet")


def _timer_table(found: Sequence[Timer]) -> Markup:
    columns = ["timer", "a step", "longest", "in all"]
    rows: list[list[object]] = [
        [
            timer.name.removeprefix(timer.place),
            *(Amount(seconds(value)) for value in (timer.mean_s, timer.longest_s, timer.total_s)),
        ]
        for timer in found
    ]
    # Columns that no timer of this place has would be empty.
    if any(timer.share is not None for timer in found):
        columns += ["of the step", ""]
        for row, timer in zip(rows, found, strict=True):
            row.extend(["", ""] if timer.share is None else [percent(timer.share), _bar(timer.share)])
    if any(timer.slowest is not None for timer in found):
        columns.append("rank at the front")
        for row, timer in zip(rows, found, strict=True):
            row.append(timer.slowest)
    return cell_table(columns, rows)


def _bar(share: float) -> Markup:
    return tag("meter", value=f"{min(share, 1.0):.4f}", aria_hidden="true")


def findings(run: Contents) -> Markup:
    """Return how slow each rank was in each step, and the table of what was found."""
    found = {
        place: heat_map(times.all(), place[1], place[0], run.hosts.get(place[0], {}), is_thinned=times.is_thinned)
        for place, times in run.times.items()
    }
    maps = {place: drawn for place, drawn in found.items() if drawn}
    parts: list[str] = []
    for (role, axis), drawn in maps.items():
        parts += [tag("p", f"{role}, {axis}", class_="quiet") if len(maps) > 1 else "", drawn]
    for name, table in run.tables.items():
        if _is_own(name, _FINDINGS):
            columns = _columns_of(table)
            cells = [dict(zip(table.columns, row, strict=False)) for row in table.rows]
            rows = [[_found(column, row.get(column)) for column in columns] for row in cells]
            parts += [tag("p", name.removesuffix(_FINDINGS)), cell_table(columns, rows)]
    for name, image in run.images.items():
        # The picture that the service has drawn, where the page has no values to draw one.
        if _is_own(name, _HEAT) and not maps:
            parts.append(_image(image))
    return section("Slow and silent ranks", *parts)


def _columns_of(table: Table) -> list[str]:
    """Return the columns of a table of findings that say something, who it is and what it costs first."""
    rows = [dict(zip(table.columns, row, strict=False)) for row in table.rows]
    said = [column for column in table.columns if any(row.get(column) is not None for row in rows)]
    known = [column for column in said if column != "rank" or "place" not in said]
    return sorted(known, key=lambda column: _FIRST.index(column) if column in _FIRST else len(_FIRST))


def _found(column: str, cell: JsonValue) -> object:
    """Return a cell of a table of findings as people read it."""
    if column == "level":
        return tag("b", str(cell), class_=str(cell))
    if column in {"span", "trace"} and cell is not None:
        return tag("code", _shortened(str(cell)))
    if not isinstance(cell, (int, float)) or isinstance(cell, bool):
        return cell
    if column == "given":
        return Amount(f"{figure(cell)} ×")
    if column == "slowdown":
        return Amount(percent(cell))
    return Amount(seconds(cell)) if column.startswith("s ") else cell


def _is_own(name: str, own: str) -> bool:
    return name == own or name.endswith(f"/{own}")


def workers(run: Contents) -> Markup:
    """Return the timeline of the last steps."""
    return section("What every worker did in the last steps", timeline(run.spans))


def tables(run: Contents) -> Markup:
    """Return the newest table of each name: samples, confusions, …."""
    own = (entry for entry in run.tables.items() if not _is_own(entry[0], _FINDINGS))
    return section("Tables", *(_table(name, table) for name, table in own))


def _table(name: str, table: Table) -> Markup:
    rows = [[_cut(cell) for cell in row] for row in table.rows[-_ROWS:]]
    left_out = len(table.rows) - len(rows)
    note = f", the last {_ROWS} of {len(table.rows)} rows" if left_out else ""
    return tag("div", tag("h3", f"{name}{_at(table)}{note}"), cell_table(table.columns, rows))


def _cut(cell: JsonValue) -> object:
    if cell is None or (isinstance(cell, (int, float)) and not isinstance(cell, bool)):
        return cell
    return _shortened(str(cell))


def _shortened(shown: str, most: int = _CELL) -> str:
    return shown if len(shown) <= most else f"{shown[:most]}…"


def _at(item: Table | Text | Image) -> str:
    return "" if item.step is None else f", {item.axis} {item.step}"


def texts(run: Contents) -> Markup:
    """Return the newest text of each name."""
    found = (
        details(f"{name}{_at(item)}", tag("pre", _shortened(item.text, _TEXT))) for name, item in run.texts.items()
    )
    return section("Texts", *found)


def images(run: Contents) -> Markup:
    """Return the newest image of each name, as many as a page can hold."""
    shown, left = [], _IMAGE_BYTES
    own = [image for name, image in run.images.items() if not _is_own(name, _HEAT)]
    # One that is too large for what is left does not keep a smaller one out.
    for image in own[:_IMAGES]:
        if len(image.png) <= left:
            left -= len(image.png)
            shown.append(_image(image))
    missing = len(own) - len(shown)
    note = tag("p", f"{missing} more are in the run: too large, or too many for a page.", class_="quiet")
    return section("Images", tag("div", *shown, class_="pictures") if shown else "", note if missing else "")


def _image(image: Image) -> Markup:
    caption = f": {image.caption}" if image.caption else ""
    return picture(image.png, image.width, image.height, f"{image.name}{_at(image)}{caption}")


def artifacts(run: Contents) -> Markup:
    """Return the files of the run."""
    rows = [_artifact(item) for item in run.history.artifacts.values()]
    return section("Artifacts", cell_table(("name", "type", "file", "size", "step", "aliases", "SHA-256"), rows))


def _artifact(item: Artifact) -> Sequence[object]:
    aliases = ", ".join(item.aliases)
    return (item.name, item.type, item.path_in, Amount(size(item.size)), item.step, aliases, (item.sha256 or "")[:12])
