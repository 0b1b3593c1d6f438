"""Steps at which a series changes its level, found without being told what its noise is like.

The steps before are the reference: a robust line through them goes on into the newest steps. A change is where the
newest steps lie off that line by several times the scatter around it, nearly all of them beyond nearly all of the
reference (ranks, so that heavy tails do not matter), and where they leave it at once: not by and by, and not with
another slope. Where 64 steps follow one another, as those in which a metric is learned, and the newest 32 are a level,
these are the reference.

Values that follow one another, as those of a random walk or of a moving average, take more for a change, and from a
correlation of 0.6 on nothing is told: such a series may have any level by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["LEAST", "Change", "ChangePoints", "change_points"]

Floats = npt.NDArray[np.float64]

RECENT = 12
"""Steps that are compared with the reference: most of them have to be off it, so fewer than seven are a burst."""

REFERENCE = 64
"""Steps of the reference, where there are so many."""

_FIRST, _AFTER = 32, 16
"""Steps of the reference at least: of a series, and after a change."""

LEAST = _FIRST + RECENT
"""Steps a series needs for anything to be told."""

SURE = 4.7
"""A change is at least so many times what the line may be off by itself at the newest steps: 2.2 scatters after a
reference of 64 steps, 2.7 after 32, 4.1 after 16. Below that, noise around a trend looks like one."""

MOST_FOLLOWING = 0.6
"""Correlation of neighbors from which a series tells nothing."""

_RANKS = 3.8
"""Deviations of the rank sum (Mann-Whitney) at least."""

_AT_ONCE = 0.6
"""Part of the change that happens between the steps just before and just after it."""

_ALIKE = 2.5
"""Deviations of von Neumann's ratio from which a reference follows itself, whatever the whole series does."""

_LEVEL = 0.3
"""Part of a change by which steps may drift that are called a level."""

_FAR = 2.0
"""Times all that the reference varies by: a level so far off is no longer one of those that it has by itself."""

_MAD = 1.4826
"""Scatter (standard deviation of normal noise) in median absolute deviations."""

_CLIP = 2.0
"""Scatters beyond which a value pulls the line no further."""

_ROUNDING = 1e-9
"""Part of a value below which its scatter is that of arithmetic."""

_CHUNK = 2048
"""Windows that are looked at together."""

_BLOCK = 16
"""Neighbors among which correlation is measured: short, so that few blocks hold a change."""


@dataclass(frozen=True, slots=True)
class Change:
    """A series has another level from a step on.

    Attributes:
        step: the first one that has it.
        found_at: the step with which it was certain.
        before: what the steps before would have had here, had their trend gone on.
        after: the median of the steps from `step` to the next change, 64 of them at most.
        size: difference in scatters of the steps before; where they had none, in what arithmetic scatters.
    """

    step: int
    found_at: int
    before: float
    after: float
    size: float

    @property
    def by(self) -> float:
        """How much the level rose; negative where it fell."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class ChangePoints:
    """What is known of a series.

    Attributes:
        changes: ascending.
        values: finite ones.
        following: correlation of neighbors, 0 to 1.
    """

    changes: tuple[Change, ...]
    values: int
    following: float

    @property
    def is_told(self) -> bool:
        """Whether a change would have been found: else that there is none means nothing."""
        return self.values >= LEAST and self.following <= MOST_FOLLOWING


def change_points(steps: Sequence[int], values: Sequence[float]) -> ChangePoints:
    """Return where a series changes its level; values that are not finite are left out.

    Args:
        steps: ascending.
        values: one for each.

    Examples:
        >>> wobble = [0.1 * (step * 7919 % 13) for step in range(120)]
        >>> found = change_points(range(120), [w + (3 if step >= 70 else 0) for step, w in enumerate(wobble)])
        >>> [(change.step, round(change.by, 1)) for change in found.changes]
        [(70, 3.0)]
    """
    series = np.asarray(values, dtype=np.float64)
    kept = np.flatnonzero(np.isfinite(series))
    series = series[kept]
    exponent = int(np.frexp(np.abs(series).max(initial=0.0))[1])
    series = np.ldexp(series, -exponent)  # exact; squares of the largest doubles would not be doubles
    following = _following(series)
    splits = list(_splits(series, following)) if following <= MOST_FOLLOWING else []
    present = [steps[at] for at in kept.tolist()]
    ends = [*(split.at for split in splits[1:]), len(series)][: len(splits)]
    changes = tuple(_change(series, present, split, end, exponent) for split, end in zip(splits, ends, strict=True))
    return ChangePoints(changes, len(series), following)


class _Split(NamedTuple):
    """Where a change is: its first value, the value with which it was certain, the level and scatter before."""

    at: int
    found_at: int
    before: float
    scatter: float


def _change(series: Floats, steps: Sequence[int], split: _Split, end: int, exponent: int) -> Change:
    after = float(np.median(series[split.at : min(end, split.at + REFERENCE)]))
    size = abs(after - split.before) / split.scatter
    with np.errstate(over="ignore"):
        before, after = np.ldexp([split.before, after], exponent).tolist()
    return Change(steps[split.at], steps[split.found_at], before, after, size)


def _following(series: Floats) -> float:
    """Return the correlation of neighbors in most short blocks, without what a line through 16 values hides of it."""
    if len(series) < _BLOCK:
        return 0.0
    # Fewer than 8,192 blocks, evenly over the series: a long one need not be read whole.
    blocks = np.lib.stride_tricks.sliding_window_view(series, _BLOCK)[:: max(1, len(series) // 4096)]
    residuals, _ = _residuals(blocks, _BLOCK)
    usual = float(np.median(1 - _neighbors(residuals) / 2))
    # A line takes about 1/16 of white noise's correlation, and a fourth of any other: both are given back. What is left
    # of a series of n strangers is 1/√n by chance.
    return min(max(0.0, (usual + 1 / _BLOCK) / (1 - 4 / _BLOCK) - 1 / math.sqrt(len(series))), 1.0)


def _neighbors(residuals: Floats) -> Floats:
    """Return von Neumann's ratio, of clipped values: 2 where neighbors are strangers, less where they are alike."""
    length = residuals.shape[1]
    reach = _CLIP * _scatter(residuals, length)[:, None]
    near = np.clip(residuals, -reach, reach)
    squares = near.var(axis=1) * length
    apart = (np.diff(near, axis=1) ** 2).sum(axis=1)
    return np.asarray(np.where(squares > 0, apart / np.where(squares > 0, squares, 1.0), 2.0))


def _splits(series: Floats, following: float) -> Iterator[_Split]:
    start, least = 0, _FIRST
    harder = math.sqrt((1 + following) / (1 - following))  # as much more do levels scatter of values that follow
    while (split := _next_split(series, start, least, harder)) is not None:
        yield split
        start, least = split.at, _AFTER


def _next_split(series: Floats, start: int, least: int, harder: float) -> _Split | None:
    """Return the first change after the value `start`; its reference grows until it is long enough to be moved.

    Shorter ones than `least` have to do for levels that are far beyond all that is in them.
    """
    lengths = [_AFTER, _FIRST, REFERENCE]
    for length, longer in zip(lengths, [*lengths[1:], len(series)], strict=True):
        # As far as there is not room yet for a reference of the next length.
        end = min(start + longer + RECENT - 1, len(series))
        is_there = end - start >= length + RECENT
        found = _search(series[start:end], length, harder, only_far=length < least) if is_there else None
        if found is not None:
            return found._replace(at=start + found.at, found_at=start + found.found_at)
    return None


def _search(series: Floats, length: int, harder: float, *, only_far: bool) -> _Split | None:
    # [windows, length + RECENT]: the reference, then the newest steps.
    windows = np.lib.stride_tricks.sliding_window_view(series, length + RECENT)
    for first in range(0, len(windows), _CHUNK):
        block = windows[first : first + _CHUNK]
        residuals, scatter = _residuals(block, length)
        shift = np.median(residuals[:, length:], axis=1)
        least = SURE * _may_be_off(length) * harder * scatter
        for row in np.flatnonzero(np.abs(shift) > least).tolist():
            at = _accepted(residuals[row], length, float(least[row]), harder, only_far=only_far)
            if at is not None:
                # The line's value there: what it has less what it is off the line.
                before = float(block[row, at] - residuals[row, at])
                return _Split(first + row + at, first + row + length + RECENT - 1, before, float(scatter[row]))
            if length == REFERENCE and _follows_itself(residuals[row, :length]):
                begin = first + row + length - _FIRST
                found = _after_a_level(series[begin : begin + _FIRST + RECENT], harder)
                if found is not None:
                    return found._replace(at=begin + found.at, found_at=begin + found.found_at)
    return None


def _after_a_level(series: Floats, harder: float) -> _Split | None:
    """Return the change behind the newest steps of a reference that follows itself, where these alone are a level.

    A curve that still bends has none: there the newest steps drift, too.
    """
    found = _search(series, _FIRST, harder, only_far=False)
    if found is None:
        return None
    earlier, later = series[:_FIRST].reshape(2, -1)
    drift, jump = np.median(later) - np.median(earlier), np.median(series[found.at :]) - found.before
    return found if abs(drift) <= _LEVEL * abs(jump) else None


def _residuals(windows: Floats, length: int) -> tuple[Floats, Floats]:
    """Return all values less the line through each window's reference, and the scatter of the reference around it."""
    # A rough line: the medians of both halves of the reference, whose middles are `half` apart.
    half, at = length // 2, np.arange(windows.shape[1]) - (length - 1) / 2  # 0 in the middle of the reference
    slope = (np.median(windows[:, half:length], axis=1) - np.median(windows[:, :half], axis=1)) / half
    rough = windows - slope[:, None] * at
    rough -= np.median(rough[:, :length], axis=1, keepdims=True)
    reach = _scatter(rough, length)[:, None] * _CLIP
    # And a fine one: least squares, of residuals that are clipped, so that heavy tails do not turn it.
    clipped = np.clip(rough[:, :length], -reach, reach)
    slope = clipped @ at[:length] / (at[:length] ** 2).sum()
    fine = rough - slope[:, None] * at - clipped.mean(axis=1, keepdims=True)
    return fine, np.maximum(_scatter(fine, length), np.abs(windows).max(axis=1) * _ROUNDING)


def _may_be_off(length: int) -> float:
    """Return the deviation, in scatters, of the newest steps' median from a line through `length` values of noise."""
    # Variances add up: of the median of normal noise, of the line's mean, of its slope so far ahead of the middle.
    ahead = (length + RECENT) / 2
    return math.sqrt(math.pi / 2 / RECENT + 1 / length + 12 * ahead**2 / length**3)


def _scatter(residuals: Floats, length: int) -> Floats:
    return np.asarray(_MAD * np.median(np.abs(residuals[:, :length]), axis=1))


def _accepted(residuals: Floats, length: int, least: float, harder: float, *, only_far: bool) -> int | None:
    """Return where in the window the change is; None where it is none."""
    # Turned so that the newest steps lie above the line.
    rises = np.copysign(1.0, np.median(residuals[length:])) * residuals
    reference, recent = rises[:length], rises[length:]
    is_far = np.median(recent) > _FAR * np.ptp(reference)
    # What is cheap to look at, and rules out most, comes first.
    if not is_far and (only_far or _follows_itself(reference)):
        return None
    if not _is_beyond(reference, recent, _RANKS * harder):
        return None
    if np.median(recent) - _bend(reference) < least / 2:
        return None
    at = _where(rises, length)
    if _is_a_ramp(rises[length - RECENT :], at - length + RECENT, least):
        return None
    jump = np.median(rises[at:]) - np.median(rises[at - RECENT : at])
    return at if jump > _AT_ONCE * max(np.median(recent), least) else None


def _follows_itself(reference: Floats) -> bool:
    return bool(_neighbors(reference[None])[0] < 2 - _ALIKE * 2 / math.sqrt(len(reference)))


def _is_beyond(reference: Floats, recent: Floats, deviations: float) -> bool:
    pairs = len(reference) * len(recent)
    above = (recent[:, None] > reference).sum() + 0.5 * (recent[:, None] == reference).sum()
    # Of the number of pairs in which the newer one is larger, where both are the same distribution.
    deviation = math.sqrt(pairs * (len(reference) + len(recent) + 1) / 12)
    # Few values have fewer deviations than are asked for: nearly all pairs are enough then.
    return bool(above - pairs / 2 >= min(deviations * deviation, 0.98 * pairs / 2))


def _bend(reference: Floats) -> float:
    """Return how far a parabola through the reference rises beyond the line, at the newest steps; 0 where it falls."""
    third = len(reference) // 3
    # In thirds from the middle, the parabola is c·x², and the line through it lies at its mean over ±1.5: 0.75·c.
    first, second, last = (np.median(reference[third * part : third * (part + 1)]) for part in range(3))
    reach = (len(reference) + RECENT) / 2 / third
    return max(0.0, float((first - 2 * second + last) / 2 * (reach**2 - 0.75)))


def _is_a_ramp(rises: Floats, at: int, least: float) -> bool:
    """Whether the newest steps leave the line with another slope rather than another level: squares of both fits."""
    # Clipped, as a single far value at the end would make a ramp of any level.
    near = np.clip(rises, -least, 2.5 * max(float(np.median(rises[at:])), least))
    level = (near[:at] ** 2).sum() + ((near[at:] - near[at:].mean()) ** 2).sum()
    # [ramps, steps]: one that begins at each step and has four steps at least; a shorter one is a jump.
    ramps = np.maximum(np.arange(len(near)) - np.arange(len(near) - 4)[:, None], 0.0)
    slopes = ramps @ near / (ramps**2).sum(axis=1)
    return bool((((near - slopes[:, None] * ramps) ** 2).sum(axis=1)).min() < level)


def _where(rises: Floats, length: int) -> int:
    """Return the split near the newest steps whose two sides are nearest to their levels."""

    def distance(at: int) -> float:
        before, after = rises[length - RECENT : at], rises[at:]
        return float(np.abs(before).sum() + np.abs(after - np.median(after)).sum())

    # The window is the first that is off the line, so the change is about where its newest steps begin.
    return min(range(length - RECENT // 2, length + RECENT - 2), key=distance)
