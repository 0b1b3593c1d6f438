"""Tags of a run, which are single texts → MLflow's, which have a key and a value."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, count

from otel_ml_exporters.backends.mlflow.names import fitting

__all__ = ["tags_of"]

_ROOM = 240
"""Of the 250 characters of a key, without its number."""

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
        if not (key and colon) or key.startswith(_OWN) or fitting(key) != key or key in found:
            key, value = fitting(tag), tag
        numbered = (f"{key[:_ROOM]}_{number}" for number in count(2))
        found[next(one for one in chain([key], numbered) if found.get(one, value) == value)] = value
    return found
