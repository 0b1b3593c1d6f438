"""What the arguments `reduce=`, `within=` and `over=` of a call ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.safe_repr import exact_text, safe_repr, text_of
from otel_ml._internal.series.declarations import NOTHING
from otel_ml.exceptions import WireError
from otel_ml.wire.reduction import Reduction

__all__ = ["Reduce", "are_attributes", "reduction_from", "text_from"]

Reduce = str | Iterable[str] | None
"""What `reduce=` accepts: one reduction, or several."""


@lru_cache(maxsize=1024)
def _reduction(across: tuple[str, ...] | None, within: str | None, over: str | None) -> Reduction:
    return (
        Reduction(NOTHING.across, within, over, NOTHING.unsaid) if across is None else Reduction(across, within, over)
    )


def reduction_from(reduce: Reduce, within: str | None, over: str | None, name: object) -> Reduction | None:
    """Return the reduction that the arguments of a call ask for; None where they ask for nothing.

    What is unknown is reported, with the nearest known name, and asks for nothing.
    """
    if reduce is None and within is None and over is None:
        return None
    try:
        # A text can be iterated over, too; its letters are not reductions.
        across = None if reduce is None else (reduce,) if isinstance(reduce, str) else tuple(reduce)
    except Exception:  # noqa: BLE001 (of a class of the program's)
        across = (reduce,)  # type: ignore[assignment] # which is not a text
    options = [(option, one) for option, one in (("within", within), ("over", over)) if one is not None]
    # One that is not a text is enough for the call to ask for nothing: half of a reduction would be another one.
    for option, given in (*options, *[("reduce", one) for one in across or ()]):
        if not isinstance(given, str):
            _unfit(name, f"expected {option}={_SUCH_AS[option]!r} or the like, got {safe_repr(given)}. It is not used.")
            return None
    within, over = (None if one is None else exact_text(one) for one in (within, over))
    try:
        return _reduction(None if across is None else tuple(map(exact_text, across)), within, over)
    except WireError as error:
        _unfit(name, str(error))
        return None


_SUCH_AS = {"reduce": "max", "within": "sum", "over": "dp"}


def _unfit(name: object, what: str) -> None:
    reporter.wrong("unknown-reduction", f"Metric {safe_repr(name)}: {what}")


def are_attributes(given: object, call: str, values: int) -> bool:
    """Whether what a call of so many values gives is attributes, or nothing; else they are counted, and it is said."""
    if given is None or type(given) is dict:
        return True
    got = safe_repr(given)
    if isinstance(given, Mapping):
        try:
            dict(given)
        except Exception as error:  # noqa: BLE001 (of a class of the program's, whose source may be gone)
            got = f"{got}, which {text_of(error)}"
        else:
            return True
    reporter.drop(
        "bad_attributes",
        f"{call}: expected attributes such as {{'task': 'math'}}, got {got}. Pass a mapping.",
        values,
        kind=f"attributes of {call}",
    )
    return False


def text_from(option: str, given: object, name: object) -> str:
    """Return the unit or the description that a call gives; none (said) where it is not a text."""
    if isinstance(given, str):
        return given
    if given is not None:
        reporter.wrong(
            "unknown-argument",
            f"Metric {safe_repr(name)}: expected {option}= to be a text, got {safe_repr(given)}. It has none.",
        )
    return ""
