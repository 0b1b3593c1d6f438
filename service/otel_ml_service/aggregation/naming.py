"""How the values of one metric are called in the run (docs/protocol.md §2.10)."""

from __future__ import annotations

from functools import lru_cache

from otel_ml.wire.attributes import DEFAULT_AXIS
from otel_ml.wire.published_name import MAX_LENGTH, published_name, sanitized
from otel_ml.wire.reduction import Reduction
from otel_ml_service.aggregation.observation import Attributes

__all__ = ["changed", "exposed_names", "item_name", "metric_name", "rank_name", "reduced_name"]

_SHOWN = 200


@lru_cache(maxsize=65536)
def metric_name(role: str, axis: str, name: str, attributes: Attributes, with_role: bool) -> str:
    """Return the name of a series before any reduction is appended."""
    return published_name(role, axis, name, attributes, with_role=with_role)


@lru_cache(maxsize=65536)
def reduced_name(series: str, reduction: Reduction, place: int, conflicting: bool) -> str:
    """Return the name of the `place`-th value of a series: the first keeps the name, further ones append theirs.

    Two ranks that disagree on the reduction are `conflicting`: each string then has a name of its own.

    Examples:
        >>> reduced_name("loss", Reduction.parse("mean,max"), 1, False)
        'loss/max'
        >>> reduced_name("loss", Reduction.parse("sum"), 0, True)
        'loss/sum'
    """
    base = f"{series}/{reduction}" if conflicting else series
    return sanitized(base if place == 0 else f"{base}/{reduction.across[place]}")


@lru_cache(maxsize=4096)
def exposed_names(role: str, axis: str, phase: str) -> tuple[str, str]:
    """Return the names of the seconds that a phase adds to the steps of a role, and of the rank that is in front then.

    Examples:
        >>> exposed_names("generator", "step", "forward")
        ('generator/time/exposed/forward', 'generator/time/exposed/forward/rank')
    """
    name = published_name(role, axis, f"time/exposed/{phase}")
    return name, f"{name}/rank"


@lru_cache(maxsize=65536)
def rank_name(series: str, reduction: Reduction, rank: int, conflicting: bool) -> str:
    """Return the name of one rank's series of the reduction `rank`."""
    base = f"{series}/{reduction}" if conflicting else series
    return sanitized(f"{base}/rank_{rank}")


def item_name(role: str, axis: str | None, name: str, rank: int, *, with_role: bool) -> str:
    """Return the name of a text, table, image, … : rank 0 keeps it, others append theirs; they are not reduced.

    Examples:
        >>> item_name("trainer", "step", "sample", 3, with_role=True)
        'sample/rank_3'
    """
    base = published_name(role, axis or DEFAULT_AXIS, name, with_role=with_role)
    return base if rank == 0 else sanitized(f"{base}/rank_{rank}")


def changed(name: str) -> str | None:
    """Return what is to be said of a name that cannot be published as it was written.

    Examples:
        >>> changed("mfu (%)"), changed("x" * 2000)[-64:]
        (None, 'are kept. Others like it are changed, too. Give it another name.')
    """
    published = sanitized(name)
    if published == name:
        return None
    why = "it is not one line of text"
    if len(name) > MAX_LENGTH:
        why = f"it has {len(name):,} characters, of which {MAX_LENGTH:,} are kept"
    return (
        f"Metric {name[:_SHOWN]!r} is published as {published[:_SHOWN]!r}: {why}. Others like it are changed, too. "
        "Give it another name."
    )
