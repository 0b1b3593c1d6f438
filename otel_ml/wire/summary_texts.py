"""Texts and lists of a script's summary: a summary has only numbers, so they travel as a parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otel_ml.flatten import leaves

__all__ = ["SUMMARY_PARAM", "summary_texts"]

SUMMARY_PARAM: Final = "summary"
"""The one parameter of such a record."""


def summary_texts(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return name → what belongs into the summary, of one record of parameters.

    A script's own parameter of that name comes with its others; alone, it is in both places.

    Examples:
        >>> summary_texts({"summary": {"note": "fine", "by": {"name": "me"}}})
        {'note': 'fine', 'by.name': 'me'}
        >>> summary_texts({"summary": {"length": 5}, "lr": 0.1})
        {}
    """
    texts = params.get(SUMMARY_PARAM)
    return dict(leaves(texts)) if isinstance(texts, Mapping) and len(params) == 1 else {}
