"""Tags of a run, which are single texts → MLflow's, which have a key and a value; and those of what began it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, count

from otel_ml.flatten import leaves
from otel_ml_exporters.backends.mlflow.names import fitting
from otel_ml_exporters.records import JsonValue

__all__ = ["source_tags", "tags_among", "tags_of"]

_KEPT_LENGTH = 240
"""Of the 250 characters of a key, without its number."""

_MAX_VALUE = 8000

_OWN = ("otel_ml.", "ml.")
"""What keys of this exporter begin with: it finds its run, and its place in it, by them."""


def tags_of(tags: Iterable[str]) -> dict[str, str]:
    """Return key → value: `key:value` is parted at its first colon, any other tag is a key with itself as value.

    So is a tag whose key another one has already, or MLflow does not take.

    Examples:
        >>> tags_of(["team:a", "baseline"])
        {'team': 'a', 'baseline': 'baseline'}
    """
    found: dict[str, str] = {}
    for tag in filter(None, tags):
        key, colon, value = tag.partition(":")
        # A tag `otel_ml.seq:9` of a user would move the exporter's own position: it is taken as one text.
        if not (key and colon) or key.startswith(_OWN) or fitting(key) != key or key in found:
            key, value = fitting(tag), tag
        numbered = (f"{key[:_KEPT_LENGTH]}_{number}" for number in count(2))
        # The first key that is free, or has this value already.
        found[next(one for one in chain([key], numbered) if found.get(one, value) == value)] = value
    return found


def tags_among(params: Mapping[str, JsonValue]) -> dict[str, str]:
    """Return key → value of the parameters below `tags`: what a script for MLflow sets as tags of a run that goes on.

    Examples:
        >>> tags_among({"tags": {"team": "a", "otel_ml.seq": 1}, "lr": 0.1})
        {'team': 'a'}
    """
    given = params.get("tags")
    found = leaves(given) if isinstance(given, Mapping) else ()
    return {fitting(key): str(value)[:_MAX_VALUE] for key, value in found if key and not key.startswith(_OWN)}


_TAGS = {
    "mlflow.source.name": ("program",),
    "mlflow.user": ("user",),
    "mlflow.source.git.commit": ("git", "commit"),
    "mlflow.source.git.branch": ("git", "branch"),
    "mlflow.source.git.repoURL": ("git", "remote"),
}


def source_tags(params: Mapping[str, JsonValue]) -> dict[str, str]:
    """Return MLflow's own tags of what the worker captured (`OTEL_ML_CAPTURE`), as far as it did.

    Examples:
        >>> source_tags({"otel_ml": {"program": "train.py", "git": {"commit": "4f1c"}}, "lr": 0.1})
        {'mlflow.source.name': 'train.py', 'mlflow.source.git.commit': '4f1c', 'mlflow.source.type': 'LOCAL'}
    """
    found: dict[str, str] = {}
    for tag, path in _TAGS.items():
        value: object = params.get("otel_ml")
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, str) and value:
            found[tag] = value[:_MAX_VALUE]
    return {**found, "mlflow.source.type": "LOCAL"} if found else {}
