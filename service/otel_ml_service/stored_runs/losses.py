"""What a run says at its end that it lost: in `otel-ml runs` and `show`, and in the report (ADR 0031)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from otel_ml.wire.attributes import RESERVED_PREFIX
from otel_ml.wire.loss_reasons import lost_values, not_recorded, other_losses
from otel_ml_service.findings.wording import plural
from otel_ml_service.stored_runs.run_history import History

__all__ = ["by_reason", "loss_lines", "losses", "values_lost"]

_DROPPED = f"{RESERVED_PREFIX}dropped/"
_TOO_LATE = "too_late"

_MOST_REASONS = 3
"""The most frequent are shown: a backend may name the value in each of 100 reasons."""


def losses(read: History) -> dict[str, int]:
    """Return what was lost or not recorded, reason → count; nothing before the run has ended.

    Examples:
        >>> losses(History(summary={"otel_ml/dropped/never_arrived": 3.0, "otel_ml/too_late": 1.0, "acc": 0.5}))
        {'never_arrived': 3, 'too_late': 1}
        >>> losses(History(summary={"otel_ml/loss": float("nan"), "otel_ml/dropped/events_never_arrived": 0.0}))
        {}
    """
    # All others are not looked at: those of a user's role `otel_ml` may be NaN, which `int` refuses.
    said = read.summary
    dropped = {name.removeprefix(_DROPPED): int(said[name]) for name in said if name.startswith(_DROPPED)}
    # 0 takes back what an earlier end of the run had counted.
    found = {reason: count for reason, count in dropped.items() if count}
    late = int(said.get(RESERVED_PREFIX + _TOO_LATE, 0))
    return found | {_TOO_LATE: late} if late else found


def values_lost(read: History) -> int:
    """Return how many values that were recorded are lost."""
    return sum(lost_values(losses(read)).values())


def loss_lines(read: History) -> Iterator[str]:
    """Yield what a person has to know of a run's losses; nothing where there are none.

    Examples:
        >>> ours = {"recorded": 9.0, "dropped/never_arrived": 3.0, "dropped/bad_value": 1.0}
        >>> list(loss_lines(History(summary={f"otel_ml/{name}": count for name, count in ours.items()})))
        ['3 of 9 values recorded are lost: never_arrived (3)', 'not recorded: bad_value (1)']
    """
    found = losses(read)
    lost, refused, others = lost_values(found), not_recorded(found), other_losses(found)
    total, recorded = sum(lost.values()), int(read.summary.get(f"{RESERVED_PREFIX}recorded", 0))
    if total:
        of = f"{total:,} of {plural(recorded, 'value')} recorded" if recorded else plural(total, "value")
        yield f"{of} {'is' if total == 1 else 'are'} lost: {by_reason(lost)}"
    if refused:
        yield f"not recorded: {by_reason(refused)}"
    if others:
        yield f"texts, files or spans are lost: {by_reason(others)}"


def by_reason(lost: Mapping[str, int]) -> str:
    """Return reasons with their counts, the most frequent first.

    Examples:
        >>> by_reason({"spool_full": 3, "HTTP 400: no": 1200})
        'HTTP 400: no (1,200); spool_full (3)'
    """
    most = sorted(lost.items(), key=lambda loss: -loss[1])[:_MOST_REASONS]
    reasons = "; ".join(f"{why} ({count:,})" for why, count in most)
    return reasons + (f"; {len(lost) - len(most):,} more reasons" if len(lost) > len(most) else "")
