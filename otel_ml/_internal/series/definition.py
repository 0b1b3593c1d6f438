"""What a metric is (name, reduction, unit) and which series of it exist in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

from otel_ml._internal.error_reporting import answered, reporter
from otel_ml._internal.safe_repr import exact_text, safe_repr, text_of
from otel_ml._internal.series.declarations import (
    NOTHING,
    Declaration,
    conflict_of,
    of_globs,
    of_name,
    other_unit_of,
    report,
)
from otel_ml._internal.series.reduction_arguments import Reduce, reduction_from, text_from
from otel_ml._internal.signature import public, publish
from otel_ml.wire.attributes import POSITION, RESERVED_PREFIX, WATERMARK
from otel_ml.wire.published_name import is_own, matches
from otel_ml.wire.reduction import Reduction
from otel_ml.wire.reductions import M2, Statistic

__all__ = [
    "CLOCK_BOUND",
    "CLOCK_OFFSET",
    "DEFINITIONS",
    "QUANTILE_COARSE",
    "SPANS_OVER_BUDGET",
    "UNSETTLED",
    "Attributes",
    "Definition",
    "Series",
    "bad_name",
    "bad_prefix",
    "define_metric",
    "identity",
]

Attributes = tuple[tuple[str, str | bool | int | float], ...]
"""Sorted by key."""

_MEAN = NOTHING
"""What a metric is where nobody says anything."""

_ASKED = 2**20
"""More than a process has different reductions."""

UNSETTLED = -1
"""The place of a series that was never folded; the one object of this number, by which compiled code knows it."""


class Definition:
    """What is known of one metric name of this process. Who says more makes a new one.

    Attributes:
        reduction: what was asked for so far, and what is used for the parts that nobody asked for by its name: what a
            glob says, or the default.
        asked: what was asked for by its name.
        default: what is used where nobody asks for anything.
        unit: in UCUM, or empty.
    """

    __slots__ = ("asked", "default", "description", "name", "reduction", "unit")

    def __init__(
        self,
        name: str,
        reduction: Reduction,
        unit: str,
        description: str,
        *,
        asked: Reduction = NOTHING,
        default: Reduction = _MEAN,
    ) -> None:
        self.name: str = name
        self.reduction: Reduction = reduction
        self.asked: Reduction = asked
        self.default: Reduction = default
        self.unit: str = unit
        self.description: str = description


class Series:
    """A metric with its attributes: what a record points to. Compared by identity.

    Attributes:
        special: records of it need more than their sum: an order, weights, sums of their own (set by the fold).
        order: place in its ScopeMetrics, the same in every flush; `UNSETTLED` before the first fold.
        moments, ordered, buckets, m2: what the fold keeps of it: sums, first and last record, quantiles, deviations.
        sums: sums of functions of its values that it keeps besides.
        weighted: a record of it had a weight.
        plain: its point is a constant prefix and two or four numbers: sums alone, and no attributes.
        ranged: a point of more than one record was sent: minimum and maximum are sent from then on.
        short_prefix, long_prefix: those prefixes, without and with minimum and maximum; empty until first sent.
            Where the order matters `short_prefix` is that of the gauge.
        constants: what is the same in every point of a series that is not plain: by (field, size) what stands before
            the point, by (field, 0) its attributes; None until first sent.
        internal: counted by otel_ml itself, not a value of the user's.
        bare: nobody has said how it is reduced. Its records travel so that every reduction can be made of them.
        crowd: what is folded of a bare series that has many records at once; None until there are.
        row: the row in which its records were folded last, where it is bare (set by the fold).
    """

    __slots__ = (
        "attributes", "bare", "buckets", "constants", "crowd", "definition", "internal", "long_prefix", "m2", "moments",
        "order", "ordered", "plain", "ranged", "row", "short_prefix", "special", "sums", "weighted",
    )  # fmt: skip

    moments: bool
    ordered: bool
    buckets: bool
    m2: bool
    short_prefix: bytes
    long_prefix: bytes

    def __init__(self, definition: Definition, attributes: Attributes = (), *, internal: bool = False) -> None:
        self.definition: Definition = definition
        self.attributes: Attributes = attributes
        self.internal: bool = internal
        self.special: bool = True  # until the first fold has settled it
        self.weighted: bool = False
        self.ranged: bool = False
        self.bare: bool = False
        self.crowd: Series | None = None
        self.row: object = None
        self.sums: tuple[Statistic, ...] = ()
        self.order: int = UNSETTLED
        self.short_prefix = self.long_prefix = b""
        self.constants: dict[tuple[int, int], bytes] | None = None

    def __repr__(self) -> str:
        return f"Series({self.definition.name!r}, {self.attributes!r})"

    def settle(self) -> None:
        """Fix what the fold has to keep for this series."""
        if self.order != UNSETTLED:
            return
        reduction = self.definition.reduction
        place = DEFINITIONS.place(reduction)
        moments, ordered = reduction.needs_moments, reduction.needs_order
        buckets, m2 = reduction.needs_buckets, M2 in reduction.extra_statistics
        sums = tuple(one for one in reduction.extra_statistics if one.of is not None)
        # Calls are over, and `special` comes last: true is right of any series, only slower, and so is what a child
        # finds that was forked meanwhile.
        self.moments, self.ordered, self.buckets, self.m2, self.sums = moments, ordered, buckets, m2, sums
        self.plain: bool = not (ordered or buckets or m2 or sums or self.weighted or self.attributes)
        is_mean = "across" in reduction.unsaid and reduction.across == _MEAN.across  # else a glob says how it is folded
        self.bare = is_mean and reduction.within is None and not self.weighted
        self.order = place
        self.special = ordered or bool(sums) or self.weighted or self.internal

    def use_weights(self) -> None:
        """Keep weighted sums from now on."""
        self.weighted = self.special = True
        self.plain = self.bare = False
        DEFINITIONS.weighted += 1

    def gather(self) -> Series:
        """Return the series that many records of a bare one are folded into, with all that may be asked for."""
        if self.crowd is None:
            crowd = Series(self.definition, self.attributes)
            crowd.settle()
            crowd.m2 = crowd.buckets = True
            crowd.plain = crowd.bare = False
            self.crowd = crowd
        return self.crowd


class Definitions:
    """All metrics and series of the process; `DEFINITIONS` is the only one.

    Attributes:
        weighted: how many series have ever had a weight (set by the fold).
        declared: what `define_metric()` said, and is used.
        timers: timer → `work` or `wait`, as `timed(…, kind=…)` said first, in the order in which that was said.
        outdated: called with the name of a metric of which more is known than its series say.
    """

    MAX_SERIES = 100_000
    """Far above any real job; what stops a step number in a metric's name from filling the memory."""

    def __init__(self) -> None:
        self.weighted = 0
        self.declared: list[Declaration] = []
        self.timers: dict[str, str] = {}
        self.outdated: list[Callable[[str], None]] = []
        self._reductions: dict[Reduction, int] = {_MEAN: 0}
        self._placed = 0
        self.forget()

    def forget(self) -> None:
        """Start with no metric; what was declared stays, and so do places: our own series keep theirs."""
        self.new_lock()
        self._definitions: dict[str, Definition] = {}
        self._series: dict[tuple[str, Attributes], Series] = {}

    def new_lock(self) -> None:
        """Replace the lock, which another thread of the parent may have held at a fork."""
        # Reentrant: a signal handler may record while the main thread looks a name up.
        self.lock = threading.RLock()

    def place(self, reduction: Reduction) -> int:
        """Return the next place in the order of series: by reduction, then by first fold.

        What nobody asked for comes before what is asked for: once a process has asked, all it records is that.
        """
        group = self._reductions.setdefault(reduction, len(self._reductions))
        self._placed += 1
        # One number sorts by both: the reduction above, the place within it below.
        return (group if reduction.unsaid else group + _ASKED) << 32 | self._placed

    def series(
        self,
        name: object,
        attributes: Attributes = (),
        reduction: Reduction | None = None,
        *,
        unit: str = "",
        description: str = "",
        default: Reduction = _MEAN,
    ) -> Series | None:
        """Return the series, made at first sight; None (counted and said) where the name is not one."""
        if not isinstance(name, str) or not name or is_own(name) or name in {WATERMARK, POSITION}:
            reporter.drop("bad_name", bad_name(name))
            return None
        name = exact_text(name)  # it is formatted from here on, in a stage for one
        with self.lock:
            before = self._definitions.get(name)
            definition, conflict, other_unit = self._definition(name, before, reduction, unit, description, default)
            series = self._series.get((name, attributes))
            # Only a new series is refused: one that is there may still get another definition.
            if series is None and len(self._series) >= self.MAX_SERIES:
                known = None
            elif series is None or series.definition is not definition:
                known = self._series[name, attributes] = Series(definition, attributes)
            else:
                known = series
        # After the lock is given back, since listeners look series up on their own.
        if before is not None and before is not definition:
            self._say_outdated([name])
        if known is None:
            reporter.drop(
                "too_many_series",
                f"Metric {name!r:.80}: this process has {self.MAX_SERIES:,} series already, so it is not recorded. "
                "Keep numbers that change, such as the step, out of names and attributes.",
                kind="too many series",
            )
        else:
            report(conflict, other_unit)
        return known

    def _definition(
        self,
        name: str,
        known: Definition | None,
        reduction: Reduction | None,
        unit: str,
        description: str,
        default: Reduction,
    ) -> tuple[Definition, str, str]:
        """Return what is known of a metric by now, and how reductions and units contradict each other, or nothing."""
        if known is None:
            known = self._declared(name, default)
        elif known.default == _MEAN:
            known = self._with(known, known.asked, unit, description, default)
        reduction = NOTHING if reduction is None else reduction
        found = self._with(known, known.asked.joined(reduction), unit, description, known.default)
        conflict = conflict_of(name, known.asked, reduction)
        return found, conflict, other_unit_of(name, known.unit, unit)

    def _with(self, known: Definition, asked: Reduction, unit: str, description: str, default: Reduction) -> Definition:
        """Return a definition with what was not known before; one with another reduction is a new one."""
        reduction = self._default(known.name, default).joined(asked)
        known.unit = known.unit or unit
        known.description = known.description or description
        known.asked, known.default = asked, default
        # Series are folded as their definition's reduction asks (`settle()`): another one is another definition, and
        # gets series of its own.
        if reduction == known.reduction:
            return known
        made = self._definitions[known.name] = Definition(
            known.name, reduction, known.unit, known.description, asked=asked, default=default
        )
        return made

    def _declared(self, name: str, default: Reduction) -> Definition:
        own, globs = of_name(self.declared, name), of_globs(self.declared, name)
        reduction = self._default(name, default).joined(own.reduction)
        unit, description = own.unit or globs.unit, own.description or globs.description
        found = Definition(name, reduction, unit, description, asked=own.reduction, default=default)
        self._definitions[name] = found
        return found

    def _default(self, name: str, default: Reduction) -> Reduction:
        """Return how a metric is reduced of which nobody asks for anything by its name."""
        return default.joined(of_globs(self.declared, name).reduction).as_default()

    def declare(self, pattern: str, reduction: Reduction, unit: str, description: str) -> None:
        """Say of all metrics whose name matches `pattern` what nobody has said of them."""
        changed: list[str] = []
        with self.lock:
            known = self._definitions.get(pattern)
            before = of_name(self.declared, pattern) if known is None else Declaration(pattern, known.asked, known.unit)
            asked = before.reduction.joined(reduction)
            declaration = Declaration(pattern, asked, unit, description)
            if declaration not in self.declared:  # a loop may say the same at each of its steps
                self.declared.append(declaration)
            for name, one in list(self._definitions.items()):
                if matches(name, pattern):
                    more = asked if name == pattern else NOTHING
                    if self._with(one, one.asked.joined(more), unit, description, one.default) is not one:
                        changed.append(name)
        self._say_outdated(changed)
        report(conflict_of(pattern, before.reduction, reduction), other_unit_of(pattern, before.unit, unit))

    def _say_outdated(self, names: Iterable[str]) -> None:
        """Have series looked up again of which more is known now; without the lock, and seldom: once a metric."""
        for name in names:
            for listener in self.outdated:
                listener(name)


DEFINITIONS = Definitions()

QUANTILE_COARSE = Series(Definition("otel_ml/quantile_coarse", Reduction(("sum",)), "1", ""), internal=True)
"""Points whose values span so much that their buckets are wider than promised."""

SPANS_OVER_BUDGET = Series(Definition("otel_ml/spans_over_budget", Reduction(("sum",)), "1", ""), internal=True)
"""Timers that were measured but whose span was not kept."""

CLOCK_OFFSET = Series(Definition("otel_ml/clock/offset", Reduction(("rank",)), "s", ""), internal=True)
"""By how much the service's clock is ahead of a host's."""

CLOCK_BOUND = Series(Definition("otel_ml/clock/bound", Reduction(("rank",)), "s", ""), internal=True)
"""How far that may be off."""

FLUSHED = Series(Definition("otel_ml/flushed", Reduction(("sum",)), "1", ""), internal=True)  # where nothing waited
OWN_COUNTS = (QUANTILE_COARSE, SPANS_OVER_BUDGET, CLOCK_OFFSET, CLOCK_BOUND, FLUSHED)
"""Series that are not values of the user (`otel_ml.wire.attributes.OWN_COUNTS`)."""

for _series in OWN_COUNTS:
    _series.settle()


def bad_name(name: object) -> str:
    """Say what is wrong with a name."""
    expected = f"a name that is a non-empty string and has no {RESERVED_PREFIX!r} at its beginning or after a '/'"
    return f"A metric's name: expected {expected}, got {safe_repr(name)}. Give it one such as 'loss'."


def bad_prefix(prefix: object) -> str:
    """Say what is wrong with the prefix of names."""
    return f"log(): expected a prefix such as 'val', got {safe_repr(prefix)}. Pass a string."


def identity(attributes: Mapping[str, object]) -> Attributes:
    """Return attributes in the one order and with the types OpenTelemetry has; others become text."""
    # A dictionary first: 1 and "1" are one key, and two items of one key would be sorted by their values.
    found = {
        text_of(key): value if isinstance(value, (str, bool, int, float)) else text_of(value)
        for key, value in attributes.items()
    }
    return tuple(sorted(found.items()))


@public
@publish("name")
@answered
def define_metric(
    name: str,
    *,
    reduce: Reduce = None,
    within: str | None = None,
    over: str | None = None,
    unit: str = "",
    description: str = "",
) -> None:
    """Say once how a metric, or all whose names match a glob such as `tokens*`, is reduced: in the whole run.

    In a glob `*` is any text and `?` any character; brackets are themselves. It may be said on one rank alone, and
    after the first record: open steps follow it. What is said of a name, here or by another call, counts, whatever a
    glob says of it; of several globs the one with more characters of its own. What was said first of the same name or
    glob stays; a different reduction is said and not used.

    Args:
        name: of the metric, or a glob.
        reduce: how values become one across ranks, the mean by default; a tuple gives several.
        within: how one rank's records of a step combine first.
        over: topology dimension of which one rank per coordinate counts.
        unit: in UCUM: `s`, `By`, `1`, `{token}`.
        description: one sentence.
    """
    if not isinstance(name, str) or not name:
        reporter.wrong("bad-name", bad_name(name))
        return
    reduction = reduction_from(reduce, within, over, name) or _MEAN
    DEFINITIONS.declare(name, reduction, text_from("unit", unit, name), text_from("description", description, name))
