"""Nested hyper-parameters → MLflow's flat, immutable, bounded ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

from otel_ml.flatten import leaves
from otel_ml_exporters.records import JsonValue

__all__ = ["MAX_PARAM_VALUE", "flattened", "reconciled"]

MAX_PARAM_VALUE = 6000
"""`mlflow.utils.validation.MAX_PARAM_VAL_LENGTH`."""


def flattened(params: Mapping[str, JsonValue]) -> Iterator[tuple[str, str]]:
    """Return key and value of every leaf, nested keys joined by dots.

    Examples:
        >>> dict(flattened({"optimizer": {"lr": 0.1, "betas": [0.9, 0.99]}, "seed": 1}))
        {'optimizer.lr': '0.1', 'optimizer.betas': '[0.9, 0.99]', 'seed': '1'}
    """
    return ((name, _text(value)) for name, value in leaves(params))


def _text(value: JsonValue) -> str:
    # As MLflow's own `log_param` does: `str()` of a plain value. Lists are JSON, which other programs read.
    if value is None or isinstance(value, (str, bool, int, float)):
        return str(value)
    return json.dumps(value, default=str)


def reconciled(
    params: Mapping[str, JsonValue], stored: Mapping[str, str], fit: Callable[[str], str] = str
) -> tuple[dict[str, str], list[str]]:
    """Return the parameters to add to `stored`, and a sentence for each one that could not be kept as given.

    MLflow refuses another value for a parameter it holds, so the first value stays.

    Args:
        params: as they were given.
        stored: key → value of those that the run has.
        fit: returns the key of a name, the same each time.

    Examples:
        >>> reconciled({"lr": 0.2, "seed": 1}, {"lr": "0.1"})
        ({'seed': '1'}, ["lr: kept '0.1', not '0.2'"])
    """
    added: dict[str, str] = {}
    conflicts = []
    for name, given in flattened(params):
        key, value = fit(name), given[:MAX_PARAM_VALUE]
        if len(given) > MAX_PARAM_VALUE:
            conflicts.append(f"{name}: cut to {MAX_PARAM_VALUE} of {len(given)} characters")
        # Also among those of this record: `{"a.b": 1, "a": {"b": 2}}` has one name twice.
        kept = stored.get(key, added.get(key))
        if kept is None:
            added[key] = value
        elif kept != value:
            conflicts.append(f"{name}: kept {kept[:100]!r}, not {value[:100]!r}")
    return added, conflicts
