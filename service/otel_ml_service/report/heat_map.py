"""Rank × step as a picture with axes: how much longer than the usual rank each was."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from otel_ml.wire.png import encode_png
from otel_ml_service.report.markup import Markup, script_data, tag, text

__all__ = ["heat_map"]

Floats = npt.NDArray[np.float64]
SlowDowns = Mapping[int, Mapping[int, float]]
"""Step → rank → slow-down."""

_COLUMNS, _ROWS, _OUTLIERS = 240, 64, 8
"""Of more steps or ranks, the slowest of each stretch is shown; of more ranks, the slowest ones have their own rows."""
_LETTERS = 12
"""Of a host's name, its end: what hosts of a cluster differ in."""
_HOTTEST = 1.0
"""Twice the usual time; slower looks the same."""
_STOPS = np.array([[90, 140, 215, 26], [90, 140, 215, 140], [240, 178, 66, 235], [212, 56, 40, 255]], dtype=np.float64)
"""Red, green, blue, and how little of the page is seen through: light and dark pages look right."""
_NOTHING = (150, 156, 168, 120)
_WIDTH, _TOP, _BOTTOM = 900, 6, 34
_LEAST_LEFT, _LETTER, _BESIDE = 84, 7.5, 14
"""Of what stands left of the picture: at least, for a letter of a row's name on a phone, and beside the name."""


_One = TypeVar("_One", int, str)


class _Row(NamedTuple):
    label: str
    ranks: Sequence[int]


def heat_map(
    slowdowns: SlowDowns,
    axis: str,
    role: str,
    hosts: Mapping[int, str] = MappingProxyType({}),
    *,
    is_thinned: bool = False,
) -> Markup:
    """Return the picture of a role on an axis; nothing where no two ranks can be compared.

    Args:
        slowdowns: of each step and rank.
        axis: of the steps.
        role: of the ranks.
        hosts: rank → its host; of more ranks than rows, a row is a host, or several.
        is_thinned: whether a step of these stands for several already.
    """
    ranks = sorted({rank for found in slowdowns.values() for rank in found})
    # ranks × steps
    matrix = np.array([[found.get(rank, math.nan) for found in slowdowns.values()] for rank in ranks])
    if len(ranks) < 2 or np.isnan(matrix).all():
        return Markup("")
    rows = _rows(ranks, matrix, hosts)
    place = {rank: number for number, rank in enumerate(ranks)}
    # rows × steps: of the ranks of a row the slowest one
    with_rows = np.stack([_most(matrix[[place[rank] for rank in row.ranks]], axis=0) for row in rows])
    values, steps = _columns(with_rows, list(slowdowns))
    drawn = _picture(values, rows, steps, list(slowdowns), axis, role)
    # Steps that are not there tell nothing of it: a loop may count samples, or every tenth step may have timers.
    is_thinned = is_thinned or len(steps) < len(slowdowns)
    return tag("figure", tag("div", drawn, class_="wide"), _legend(is_thinned), class_="heat")


def _most(values: Floats, axis: int) -> Floats:
    # `nanmax` would warn of rows that are all NaN.
    filled = np.where(np.isnan(values), -np.inf, values).max(axis=axis)
    return np.where(np.isinf(filled), np.nan, filled)


def _rows(ranks: Sequence[int], matrix: Floats, hosts: Mapping[int, str]) -> list[_Row]:
    if len(ranks) <= _ROWS:
        return [_Row(f"rank {rank}", (rank,)) for rank in ranks]
    means = np.nan_to_num(matrix).mean(
        axis=1
    )  # of each rank; a step without its timers is one in which it was not slow
    slowest = sorted(int(place) for place in np.argsort(-means, kind="stable")[:_OUTLIERS])
    alone = [_Row(f"rank {ranks[place]}", (ranks[place],)) for place in slowest]
    return [*alone, *(_by_hosts(ranks, hosts) if hosts.keys() >= set(ranks) else _by_numbers(ranks))]


def _by_numbers(ranks: Sequence[int]) -> list[_Row]:
    return [_Row(f"{block[0]}–{block[-1]}", block) for block in _blocks(ranks)]


def _by_hosts(ranks: Sequence[int], hosts: Mapping[int, str]) -> list[_Row]:
    """Return a row for each host in the order of their ranks, or for several that follow each other."""
    of_host: dict[str, list[int]] = {}
    for rank in ranks:
        of_host.setdefault(hosts[rank], []).append(rank)
    return [_Row(_named(block), [rank for host in block for rank in of_host[host]]) for block in _blocks(list(of_host))]


def _named(hosts: Sequence[str]) -> str:
    names = [host if len(host) <= _LETTERS else f"…{host[1 - _LETTERS :]}" for host in hosts]
    return names[0] if len(names) == 1 else f"{names[0]} +{len(names) - 1}"


def _blocks(every: Sequence[_One]) -> list[Sequence[_One]]:
    size = math.ceil(len(every) / (_ROWS - _OUTLIERS))
    return [every[start : start + size] for start in range(0, len(every), size)]


def _columns(matrix: Floats, steps: Sequence[int]) -> tuple[Floats, list[int]]:
    """Return at most 240 columns, and the step that each stands for: the one in which a rank was slowest."""
    size = math.ceil(len(steps) / _COLUMNS)
    parts = [matrix[:, start : start + size] for start in range(0, len(steps), size)]
    worst = [int(np.nan_to_num(part).max(axis=0).argmax()) for part in parts]
    kept = [steps[number * size + place] for number, place in enumerate(worst)]
    return np.stack([_most(part, axis=1) for part in parts], axis=1), kept


def _picture(
    values: Floats, rows: Sequence[_Row], steps: Sequence[int], every: Sequence[int], axis: str, role: str
) -> Markup:
    # Lower rows where there are many: 64 are still less than 400 high.
    tall = 18 if len(rows) <= 16 else 9 if len(rows) <= 48 else 6
    left = max(_LEAST_LEFT, math.ceil(_LETTER * max(len(row.label) for row in rows)) + _BESIDE)
    wide = (_WIDTH - left - 4) / len(steps)
    high = tall * len(rows)
    # rows × columns; -1 where a row has no timer, as `ranks.js` reads it
    percent = np.where(np.isnan(values), -1, np.clip(np.nan_to_num(values) * 100, 0, 9999)).round().astype(int)
    data = {"axis": axis, "role": role, "steps": list(steps), "rows": [row.label for row in rows],
            "values": percent.tolist(), "left": left, "top": _TOP, "width": wide, "height": tall}  # fmt: skip
    labeled = max(1, math.ceil(14 / tall))  # every so many rows, so that names do not overlap
    size = math.ceil(len(every) / len(steps))  # steps of a column
    # Of each column the first step, of the last one the last: the axis says where the run begins and ends.
    ends = [*every[:-1:size][: len(steps) - 1], every[-1]]
    names = [
        tag("text", row.label, x=left - 6, y=_TOP + number * tall + tall / 2 + 4, text_anchor="end")
        for number, row in enumerate(rows)
        if number % labeled == 0
    ]
    ticks = [
        tag("text", f"{ends[column]:,}", x=f"{left + (column + 0.5) * wide:.1f}", y=_TOP + high + 14, text_anchor=side)
        for column, side in _ticks(len(steps))
    ]
    title = tag("text", axis, x=(left + _WIDTH) / 2, y=_TOP + high + 28, text_anchor="middle")
    mark = tag("rect", width=f"{wide:.2f}", height=tall, class_="cursor", hidden="")
    return tag(
        "svg", _image(values, left, high), *names, *ticks, title, mark,
        viewBox=f"0 0 {_WIDTH} {high + _TOP + _BOTTOM}", role="img", tabindex=0,
        data_heat=script_data(data),
        aria_label=f"how much longer than the usual rank each {role} took, by {axis}; arrows move, Enter opens it",
    )  # fmt: skip


def _ticks(columns: int) -> list[tuple[int, str]]:
    if columns < 3:
        return [(column, "middle") for column in range(columns)]
    inner = [(round(columns * part / 4), "middle") for part in (1, 2, 3)] if columns >= 8 else []
    return [(0, "start"), *inner, (columns - 1, "end")]


def _image(values: Floats, left: int, height: int) -> Markup:
    pixels = _colored(values)
    png = encode_png(pixels.tobytes(), pixels.shape[1], pixels.shape[0], 4)
    source = "data:image/png;base64," + b64encode(png).decode("ascii")
    place = f'x="{left}" y="{_TOP}" width="{_WIDTH - left - 4}" height="{height}"'
    return Markup(f'<image href="{source}" {place} preserveAspectRatio="none"/>')


def _colored(values: Floats) -> npt.NDArray[np.uint8]:
    heat = np.clip(np.nan_to_num(values) / _HOTTEST, 0.0, 1.0)
    stops = np.linspace(0.0, 1.0, len(_STOPS))
    channels = [np.interp(heat, stops, _STOPS[:, channel]) for channel in range(4)]
    colored: npt.NDArray[np.uint8] = np.stack(channels, axis=-1).round().astype(np.uint8)
    colored[np.isnan(values)] = _NOTHING
    return colored


def _legend(is_thinned: bool) -> Markup:
    colors = ", ".join(
        f"rgb({red:.0f} {green:.0f} {blue:.0f} / {alpha / 255:.2f})" for red, green, blue, alpha in _STOPS
    )
    scale = Markup(f'<span class="scale" style="background: linear-gradient(to right, {text(colors)})"></span>')
    each = " A column is the slowest of several steps." if is_thinned else ""
    return tag(
        "figcaption",
        tag("span", "as the others ", scale, f" twice their time or more; gray: no timer.{each}"),
    )
