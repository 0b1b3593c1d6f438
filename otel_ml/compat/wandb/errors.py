"""W&B's exceptions, for `except wandb.Error`; otel_ml raises none of them."""

from __future__ import annotations

from typing import Any

from otel_ml.compat.tracking.original_names import name_of_the_original

__all__ = ["CommError", "Error", "UsageError"]


class Error(Exception):
    """Any failure of W&B."""


class CommError(Error):
    """W&B's server cannot be reached."""


class UsageError(Error):
    """W&B was called wrongly."""


def __getattr__(name: str) -> Any:
    """Return W&B's own exception, where its package is installed."""
    return name_of_the_original("wandb.errors", name, is_of_the_server=True)
