"""How a metric is reduced, and its grammar: `[within ">"] across {"," across} ["@" dim]` (docs/protocol.md §2.8)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from otel_ml.exceptions import WireError
from otel_ml.wire.reductions import ACROSS, DEFAULT, M2, OF_OTHERS, STATISTICS, WITHIN, WSUM, Row, Statistic, row_of

__all__ = ["Reduction"]

_PARTS = ("across", "within", "over")
_LONGEST_ASKED = 64
_DIM = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class Reduction:
    """How the values of one metric at one step become one value, or several.

    Attributes:
        across: reductions across writers; the first keeps the metric's name.
        within: how one writer's records combine first; None pools all records.
        over: topology dimension of which only one rank per coordinate counts, or None.
        unsaid: which of `across`, `within` and `over` nobody asked for by the metric's name: they are defaults, and
            give way to what anybody says. That `within` or `over` is None says nothing in any case.

    Examples:
        >>> Reduction.parse("sum>max,mean@dp")
        Reduction(across=('max', 'mean'), within='sum', over='dp', unsaid=())
        >>> str(Reduction(("mean",)))
        'mean'
    """

    across: tuple[str, ...] = (DEFAULT,)
    within: str | None = None
    over: str | None = None
    unsaid: tuple[str, ...] = ()
    _hash: int = field(init=False, repr=False, compare=False)

    def joined(self, other: Reduction) -> Reduction:
        """Return this reduction with the parts that only `other` says; what both say stays as it is here.

        Examples:
            >>> Reduction(("mean",), over="dp", unsaid=("across",)).joined(Reduction(("sum",)))
            Reduction(across=('sum',), within=None, over='dp', unsaid=())
        """
        across = other if self.explicit[0] is None and other.explicit[0] is not None else self
        # A part that is absent here takes a default from there, too; `across` is never absent.
        within = other if self.explicit[1] is None and (other.explicit[1] is not None or self.within is None) else self
        over = other if self.explicit[2] is None and (other.explicit[2] is not None or self.over is None) else self
        owners = zip(_PARTS, (across, within, over), strict=True)
        return Reduction(
            across.across, within.within, over.over, tuple(part for part, owner in owners if part in owner.unsaid)
        )

    def as_default(self) -> Reduction:
        """Return this reduction with all that it says as defaults.

        Examples:
            >>> Reduction(("max",), "sum").as_default().joined(Reduction(("min",)))
            Reduction(across=('min',), within='sum', over=None, unsaid=('within',))
        """
        said = {"within": self.within is not None, "over": self.over is not None}
        unsaid = tuple(part for part in _PARTS if part in self.unsaid or said.get(part, True))
        return Reduction(self.across, self.within, self.over, unsaid)

    def contradicts(self, other: Reduction) -> bool:
        """Whether both say something of one part, and not the same.

        Examples:
            >>> Reduction(("max",)).contradicts(Reduction(("max",), "sum"))
            False
            >>> Reduction(("max",)).contradicts(Reduction(("sum",)))
            True
        """
        return any(
            mine is not None and theirs is not None and mine != theirs
            for mine, theirs in zip(self.explicit, other.explicit, strict=True)
        )

    @property
    def explicit(self) -> tuple[tuple[str, ...] | None, str | None, str | None]:
        """What was asked for of `across`, `within`, `over`; None where nothing was."""
        return (
            None if "across" in self.unsaid else self.across,
            None if "within" in self.unsaid else self.within,
            None if "over" in self.unsaid else self.over,
        )

    @property
    def sums_all(self) -> bool:
        """Whether it adds up all records, also several of one writer."""
        return self.within is None and "sum" in self.across

    def __post_init__(self) -> None:
        if not self.across:
            raise WireError("A reduction needs at least one name, got none.", slug="unknown-reduction")
        for name in self.across:
            if row_of(name) is None:
                raise WireError(_unknown(name, ACROSS), slug="unknown-reduction")
        if len(set(self.across)) != len(self.across):
            raise WireError(f"A reduction is named twice in {self.across!r}.", slug="unknown-reduction")
        if self.within is not None and self.within not in WITHIN:
            raise WireError(_unknown(self.within, WITHIN), slug="unknown-reduction")
        if self.over is not None and not _DIM.match(self.over):
            raise WireError(
                f"over={self.over!r} is not a topology dimension; expected a name such as 'dp'.",
                slug="unknown-reduction",
            )
        object.__setattr__(self, "_hash", hash((self.across, self.within, self.over, self.unsaid)))

    def __hash__(self) -> int:
        return self._hash  # worked out once: each message that arrives asks for it several times

    def __reduce__(self) -> tuple[type[Reduction], tuple[object, ...]]:
        return Reduction, (self.across, self.within, self.over, self.unsaid)  # in another process texts hash otherwise

    def __str__(self) -> str:
        text = ",".join(self.across)
        if self.within is not None:
            text = f"{self.within}>{text}"
        return f"{text}@{self.over}" if self.over is not None else text

    @staticmethod
    @lru_cache(maxsize=1024)
    def parse(text: str, unsaid: str = "") -> Reduction:
        """Parse the grammar string, and the list of its parts that are defaults (`across,within,over`).

        Raises:
            WireError: naming the unknown reduction, the nearest known one, and all known ones.
        """
        # From the outside in: `sum>max,mean@dp` is a dimension behind the `@`, and what is across behind the last `>`.
        body, _, over = text.partition("@")
        within, arrow, across = body.rpartition(">")
        return Reduction(
            across=tuple(part.strip() for part in across.split(",")),
            within=within.strip() if arrow else None,
            over=over.strip() if "@" in text else None,
            unsaid=tuple(part for part in _PARTS if part in unsaid.split(",")),
        )

    @property
    def rows(self) -> tuple[Row, ...]:
        """What is known of each of `across`."""
        return tuple(_rows(self.across))

    @property
    def of_a_writer(self) -> tuple[Row, ...]:
        """What is known of each reduction that one writer's records go into: `within`, or else all of `across`."""
        return self.rows if self.within is None else tuple(_rows((self.within,)))

    @property
    def needs_buckets(self) -> bool:
        """Whether a quantile or the histogram itself is asked for (→ ExponentialHistogram)."""
        return any(row.point == "buckets" for row in _rows(self.across))

    @property
    def needs_order(self) -> bool:
        """Whether the last or the first record is asked for (→ Gauge)."""
        return any(row.point == "order" for row in self.of_a_writer)

    @property
    def needs_moments(self) -> bool:
        """Whether sums or extremes are asked for (→ Histogram without buckets)."""
        return any(row.point == "moments" for row in self.of_a_writer)

    @property
    def is_by_time(self) -> bool:
        """Whether the value of one writer or another is taken by its time."""
        return self.needs_order or any(row.point == "order" for row in _rows(self.across))

    @property
    def takes_weights(self) -> bool:
        """Whether weights of records have a part in it: of a deviation only where it is asked for alone."""
        alone = _rows(self.across) if len(self.across) == 1 else ()
        return any(M2 in row.needs for row in alone) or any(WSUM in row.needs for row in self.rows)

    @property
    def edges(self) -> frozenset[str]:
        """Which records of a writer are asked for themselves: `first`, `last`."""
        return frozenset(row.edge for row in self.of_a_writer if row.edge is not None)

    @property
    def extra_statistics(self) -> tuple[Statistic, ...]:
        """What a writer tells only where it is asked for (→ attributes of the point such as `ml.m2`)."""
        needs = {statistic for row in self.of_a_writer for statistic in row.needs if statistic.called}
        return tuple(statistic for statistic in STATISTICS if statistic in needs)


def _rows(names: tuple[str, ...]) -> Iterator[Row]:
    return (row for name in names if (row := row_of(name)) is not None)


def _unknown(name: str, known: tuple[str, ...]) -> str:
    meant = _meant(name, known)
    hint = f" Did you mean {meant}?" if meant else ""
    return f"Unknown reduction {name!r}.{hint} Known: {', '.join(known)}, and quantiles such as p99."


def _meant(name: str, known: tuple[str, ...]) -> str:
    """Return what to write instead of an unknown name, which may be several in one text; nothing where none is near.

    Examples:
        >>> _meant("Avg", ACROSS), _meant("mean, max", ACROSS), _meant("sum>max", ACROSS), _meant("median", WITHIN)
        ("'mean'", "('mean', 'max')", "within='sum', reduce='max'", '')
    """
    import difflib

    # A longer text is near to none of them, and to find that out takes a tenth of a second and 37 MB for each million
    # characters.
    if len(name) > _LONGEST_ASKED:
        return ""
    within, arrow, across = name.rpartition(">")
    if known is ACROSS and (arrow or "," in across):
        several = tuple(one.strip() for one in across.split(","))
        # A part of it is unknown itself: to write it in another way would not help.
        if any(row_of(one) is None for one in several) or (arrow and within.strip() not in WITHIN):
            return ""
        shown = repr(several if len(several) > 1 else several[0])
        return f"within={within.strip()!r}, reduce={shown}" if arrow else shown
    other = OF_OTHERS.get(name.lower(), "")
    if other:
        return repr(other) if other in known or known is ACROSS else ""
    near = difflib.get_close_matches(name.lower(), known, n=1)
    return repr(near[0]) if near else ""
