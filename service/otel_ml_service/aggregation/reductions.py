"""How the metrics of a role are reduced: what anybody said of one holds for all that is recorded under its name.

Each piece keeps the reduction that its writer sent, and which parts of it are defaults. What it is reduced by is found
when its step closes, so that it does not matter who said it, and when (ADR 0036).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from otel_ml.wire.published_name import by_precedence, matches
from otel_ml.wire.reduction import Reduction
from otel_ml_service.aggregation.piece import Piece, Shape

__all__ = ["Declared", "Part", "Reductions"]

MAX_PLANS = 65_536
"""Shapes with a reduction that are remembered as looked at; a cache."""

MAX_DECLARED = 10_000
"""Definitions that are remembered; a program that makes more has names in them that never end."""


_NOTHING = Reduction(unsaid=("across",))
"""What is asked for where nobody asks for anything."""


class Declared(NamedTuple):
    """What `define_metric()` said: of all names that the glob matches."""

    pattern: str
    reduction: Reduction

    def fits_as_glob(self, name: str) -> bool:
        """Whether it is said of a metric among others: that gives way to what is said of it by its name."""
        return name != self.pattern and matches(name, self.pattern)


class Part(NamedTuple):
    """Points of a piece that one reduction is made of; `rows` is None where these are all of it."""

    reduction: Reduction
    rows: list[int] | None
    shape: Shape


class News(NamedTuple):
    """What a piece told of a metric that was not known.

    Attributes:
        contradicts: its reduction is not the one that somebody else asked for, who is given.
        was: what the steps that have closed show, where that is something else.
        counts: which of two reductions of one glob is used; None where both are.
    """

    name: str
    contradicts: tuple[str, int] | None
    was: str | None
    counts: str | None = None

    @property
    def tells(self) -> bool:
        """Whether a person has to know."""
        return self.contradicts is not None or self.was is not None


class Reductions:
    """What was said of the metrics of one role.

    Attributes:
        sent: metric → reduction, with its defaults → the rank that sent it first.
        declared: what was said of names: definition → rank.
        shown: metric → the default that closed steps show.
        changed: it is to be committed.
        revision: grows with all that is learned.
    """

    def __init__(self) -> None:
        self.sent: dict[str, dict[Reduction, int]] = {}
        self.declared: dict[Declared, int] = {}
        self.shown: dict[str, str] = {}
        self.changed = False
        self.revision = 0
        self._seen: set[tuple[int, Reduction]] = set()
        # From here on caches of what was said, which `_forget` empties.
        self._plans: dict[tuple[int, Reduction], Sequence[Part]] = {}
        self._used: dict[str, Reduction] = {}
        self._contradictions: dict[str, bool] = {}
        self._is_shown: set[tuple[int, Reduction]] = set()
        self._retold: dict[tuple[int, Reduction], bool] = {}

    def note_committed(self) -> None:
        """Note that all that was said is committed."""
        self.changed = False

    def restore(
        self, sent: dict[str, dict[Reduction, int]], declared: dict[Declared, int], shown: dict[str, str]
    ) -> None:
        """Know again what was said."""
        self.sent, self.declared, self.shown = sent, declared, shown

    def learn(self, piece: Piece) -> list[News]:
        """Note how a piece is reduced; return what is new of metrics that were known before."""
        combination = (piece.shape.number, piece.reduction)
        if combination in self._seen:
            return []
        if len(self._seen) >= MAX_PLANS:
            self._seen.clear()
        self._seen.add(combination)
        news = [self._note(key.name, piece.reduction, piece.source.rank) for key in piece.shape.series]
        return [one for one in news if one is not None and one.tells]

    def declare(self, declared: Declared, rank: int) -> list[News]:
        """Note what a writer says of metrics, whether or not it records them."""
        if declared in self.declared or len(self.declared) >= MAX_DECLARED:
            return []
        self.declared[declared] = rank
        self._forget()
        news = [self._news(name, None) for name in self.sent if declared.fits_as_glob(name)]
        own = self._news(declared.pattern, self._contradicted(declared.pattern, declared.reduction))
        # `*` and `?` may be part of the name of a metric that somebody records: it is found by its name then.
        is_glob = bool(set("*?") & set(declared.pattern)) and declared.pattern not in self.sent
        news.append(own._replace(counts=str(self.used(declared.pattern)) if is_glob else None))
        return [one for one in news if one.tells]

    def _note(self, name: str, reduction: Reduction, rank: int) -> News | None:
        known = self.sent.setdefault(name, {})
        if reduction in known:
            return None
        contradicted = self._contradicted(name, reduction)
        known[reduction] = rank
        self._contradictions.pop(name, None)
        self.changed = True
        if len(known) == 1 and not contradicted:
            return None
        return self._news(name, contradicted)

    def _news(self, name: str, contradicted: tuple[str, int] | None) -> News:
        self._forget()
        used, was = str(self.used(name)), self.shown.get(name)
        if was is not None and used != was:
            del self.shown[name]
        return News(name, contradicted, was if used != was else None)

    def _forget(self) -> None:
        self.changed = True
        self.revision += 1
        self._plans.clear()
        self._used.clear()
        self._contradictions.clear()
        self._is_shown.clear()
        self._retold.clear()

    def _said(self, name: str) -> dict[Reduction, int]:
        """Return what was sent and declared of a metric, in an order that does not depend on who was first."""
        said = {declared.reduction: rank for declared, rank in self.declared.items() if declared.pattern == name}
        said |= self.sent.get(name, {})
        # What somebody asked for has an empty `unsaid`, and comes before defaults.
        return dict(sorted(said.items(), key=lambda item: (item[0].unsaid, str(item[0]))))

    def _contradicted(self, name: str, reduction: Reduction) -> tuple[str, int] | None:
        found = [(str(one), rank) for one, rank in self._said(name).items() if one.contradicts(reduction)]
        return found[0] if found else None

    def used(self, name: str) -> Reduction:
        """Return what values are reduced by of which nobody said anything: what was said of others of that name."""
        found = self._used.get(name)
        if found is None:
            said = self._said(name)
            # Part by part: what is said by the name goes before globs, and these before what a writer took by itself.
            default = max((one for one in said if one.unsaid), key=_rank_of_default, default=_NOTHING)
            found = default.joined(self._of_globs(name)).as_default()
            for one in said:
                found = found.joined(one)
            self._used[name] = found = Reduction(found.across, found.within, found.over)
        return found

    def _of_globs(self, name: str) -> Reduction:
        """Return what globs say of a metric: in each part the one with more characters of its own."""
        globs = [declared for declared in self.declared if declared.fits_as_glob(name)]
        found = _NOTHING
        for declared in sorted(globs, key=lambda one: (by_precedence(one.pattern), str(one.reduction))):
            found = found.joined(declared.reduction)
        return found

    def of(self, sent: Reduction, name: str) -> Reduction:
        """Return what values are reduced by that were sent with a reduction."""
        used, (across, within, over) = self.used(name), sent.explicit
        return Reduction(
            used.across if across is None else across,
            used.within if within is None else within,
            used.over if over is None else over,
        )

    def is_contradicted(self, name: str) -> bool:
        """Whether it has several reductions, each of which is published under a name of its own."""
        known = self._contradictions.get(name)
        if known is None:  # asked of each value of each row
            parts = [one.explicit for one in self._said(name)]
            # Two values of one part, be it across, within or over; None is a part that nobody named.
            known = any(len({part[place] for part in parts} - {None}) > 1 for place in range(3))
            self._contradictions[name] = known
        return known

    def parts(self, piece: Piece) -> Sequence[Part]:
        """Return which of a piece's points are reduced how."""
        combination = (piece.shape.number, piece.reduction)
        plan = self._plans.get(combination)
        if plan is None:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            plan = self._plans[combination] = self._parts(piece.shape, piece.reduction)
        return plan

    def _parts(self, shape: Shape, sent: Reduction) -> Sequence[Part]:
        rows: dict[Reduction, list[int]] = {}
        for row, key in enumerate(shape.series):
            rows.setdefault(self.of(sent, key.name), []).append(row)
        if len(rows) < 2:
            return [Part(reduction, None, shape) for reduction in rows or [_plain(sent)]]
        return [
            Part(reduction, chosen, Shape(-1, tuple(shape.series[row] for row in chosen)))
            for reduction, chosen in rows.items()
        ]

    def retells(self, piece: Piece) -> bool:
        """Whether points of a piece become something that its writer did not know of; asked once of its kind."""
        combination = (piece.shape.number, piece.reduction)
        found = self._retold.get(combination)
        if found is None:
            if len(self._retold) >= MAX_PLANS:
                self._retold.clear()
            found = any(part.reduction != _plain(piece.reduction) for part in self.parts(piece))
            self._retold[combination] = found
        return found

    def show(self, piece: Piece) -> None:
        """Note that a closed step shows a piece, and by which defaults."""
        combination = (piece.shape.number, piece.reduction)
        if not piece.reduction.unsaid or combination in self._is_shown:
            return
        if len(self._is_shown) >= MAX_PLANS:
            self._is_shown.clear()
        self._is_shown.add(combination)
        for key in piece.shape.series:
            if self._nobody_said(key.name):
                self.shown[key.name] = str(self.used(key.name))
                self.changed = True

    def _nobody_said(self, name: str) -> bool:
        """Whether nobody has asked for a reduction by the metric's name."""
        return all(one.explicit == (None, None, None) for one in self._said(name))


def _plain(reduction: Reduction) -> Reduction:
    return Reduction(reduction.across, reduction.within, reduction.over)


def _rank_of_default(reduction: Reduction) -> tuple[bool, str]:
    """Sort key of defaults: of a name that is logged and timed, the timer's is used."""
    return reduction.within is not None, str(reduction)
