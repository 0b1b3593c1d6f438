"""`wandb.util`, as far as training scripts use it."""

from __future__ import annotations

import secrets
import string
from typing import Any

from otel_ml.compat.tracking.original_names import name_of_the_original

__all__ = ["generate_id"]

_CHARACTERS = string.ascii_lowercase + string.digits


def generate_id(length: int = 8) -> str:
    """Return a new run id. Independent of the seed of `random`, which training sets to the same on every start."""
    return "".join(secrets.choice(_CHARACTERS) for _ in range(length))


def __getattr__(name: str) -> Any:
    """Return W&B's own function, where its package is installed."""
    return name_of_the_original("wandb.util", name, is_of_the_server=True)
