"""The list of reductions and their grammar: `[within ">"] across {"," across} ["@" dim]` (docs/protocol.md §2.8)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from otel_ml.exceptions import WireError

__all__ = ["ACROSS", "WITHIN", "Reduction", "is_quantile", "quantile_of"]

ACROSS = (
    "mean", "sum", "min", "max", "count", "std", "last", "first",
    "histogram", "rank", "argmax", "argmin",
)  # fmt: skip
"""Reductions across writers, besides the quantiles `pNN`."""

WITHIN = ("mean", "sum", "min", "max", "count", "std", "last", "first")
"""Reductions that may combine one writer's records of a step first."""

_QUANTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?|100)\Z")
_DIM = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def is_quantile(name: str) -> bool:
    """Whether `name` is a quantile such as `p50` or `p99.9`."""
    return _QUANTILE.match(name) is not None


def quantile_of(name: str) -> float:
    """Return the quantile in [0, 1] that `name` (`p99`) stands for.

    Examples:
        >>> quantile_of("p95")
        0.95
    """
    match = _QUANTILE.match(name)
    if match is None:
        raise WireError(f"{name!r} is not a quantile. Write p50, p90, p99.9, …", slug="unknown-reduction")
    return float(match[1]) / 100


@dataclass(frozen=True, slots=True)
class Reduction:
    """How the values of one metric at one step become one value, or several.

    Attributes:
        across: reductions across writers; the first keeps the metric's name.
        within: how one writer's records combine first; None pools all records.
        over: topology dimension of which only one rank per coordinate counts, or None.
        unsaid: which of `across` and `within` nobody asked for: they are defaults, and give way to what anybody says.
            That `within` or `over` is None says nothing in any case.

    Examples:
        >>> Reduction.parse("sum>max,mean@dp")
        Reduction(across=('max', 'mean'), within='sum', over='dp', unsaid=())
        >>> str(Reduction(("mean",)))
        'mean'
    """

    across: tuple[str, ...] = ("mean",)
    within: str | None = None
    over: str | None = None
    unsaid: tuple[str, ...] = ()

    def joined(self, other: Reduction) -> Reduction:
        """Return this reduction with the parts that only `other` says; what both say stays as it is here.

        Examples:
            >>> Reduction(("mean",), over="dp", unsaid=("across",)).joined(Reduction(("sum",)))
            Reduction(across=('sum',), within=None, over='dp', unsaid=())
        """
        across = other if self.said[0] is None and other.said[0] is not None else self
        within = other if self.said[1] is None and (other.said[1] is not None or self.within is None) else self
        unsaid = tuple(part for part, owner in (("across", across), ("within", within)) if part in owner.unsaid)
        return Reduction(across.across, within.within, self.over or other.over, unsaid)

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
            for mine, theirs in zip(self.said, other.said, strict=True)
        )

    @property
    def said(self) -> tuple[tuple[str, ...] | None, str | None, str | None]:
        """What was asked for of `across`, `within`, `over`; None where nothing was."""
        return (
            None if "across" in self.unsaid else self.across,
            None if "within" in self.unsaid else self.within,
            self.over,
        )

    @property
    def sums_all(self) -> bool:
        """Whether it adds up all records, also several of one writer."""
        return self.within is None and "sum" in self.across

    def __post_init__(self) -> None:
        if not self.across:
            raise WireError("A reduction needs at least one name, got none.", slug="unknown-reduction")
        for name in self.across:
            if name not in ACROSS and not is_quantile(name):
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

    def __str__(self) -> str:
        text = ",".join(self.across)
        if self.within is not None:
            text = f"{self.within}>{text}"
        return f"{text}@{self.over}" if self.over is not None else text

    @staticmethod
    @lru_cache(maxsize=1024)
    def parse(text: str, unsaid: str = "") -> Reduction:
        """Parse the grammar string, and the list of its parts that are defaults (`across,within`).

        Raises:
            WireError: naming the unknown reduction, the nearest known one, and all known ones.
        """
        body, _, over = text.partition("@")
        within, arrow, across = body.rpartition(">")
        return Reduction(
            across=tuple(part.strip() for part in across.split(",")),
            within=within.strip() if arrow else None,
            over=over.strip() if "@" in text else None,
            unsaid=tuple(part for part in ("across", "within") if part in unsaid.split(",")),
        )

    @property
    def needs_buckets(self) -> bool:
        """Whether a quantile or the histogram itself is asked for (→ ExponentialHistogram)."""
        return any(name == "histogram" or is_quantile(name) for name in self.across)

    @property
    def needs_order(self) -> bool:
        """Whether `last` or `first` is asked for (→ Gauge)."""
        return self.within in {"last", "first"} or (
            self.within is None and any(name in {"last", "first"} for name in self.across)
        )

    @property
    def is_by_time(self) -> bool:
        """Whether the value of one writer or another is taken by its time."""
        return not {"last", "first"}.isdisjoint((self.within, *self.across))

    @property
    def needs_moments(self) -> bool:
        """Whether count, sum, min, max or std are asked for (→ Histogram without buckets)."""
        if self.within is not None:
            return self.within not in {"last", "first"}
        return any(name not in {"last", "first", "histogram"} and not is_quantile(name) for name in self.across)

    @property
    def needs_m2(self) -> bool:
        """Whether `std` is asked for, pooled or within a writer (→ `ml.m2` on the point)."""
        return self.within == "std" or (self.within is None and "std" in self.across)


def _unknown(name: str, known: tuple[str, ...]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"Unknown reduction {name!r}.{hint} Known: {', '.join(known)}, and quantiles such as p99."
