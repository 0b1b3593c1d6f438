"""W&B's exceptions, for `except wandb.Error`; otel_ml raises none of them."""

from __future__ import annotations

__all__ = ["CommError", "Error", "UsageError"]


class Error(Exception):
    """Any failure of W&B."""


class CommError(Error):
    """W&B's server cannot be reached."""


class UsageError(Error):
    """W&B was called wrongly."""
