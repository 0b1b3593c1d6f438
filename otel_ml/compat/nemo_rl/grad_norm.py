"""Say where training diverges: a gradient norm that is no finite number."""

from __future__ import annotations

import logging
import math
from typing import Any

import otel_ml

__all__ = ["warn_if_inf_grad_norm"]

_LOGGER = logging.getLogger(__name__)


def warn_if_inf_grad_norm(grad_norm: Any) -> bool:
    """Warn where `grad_norm` is infinite or NaN, and record the event `grad_norm.not_finite`; return whether it is.

    Args:
        grad_norm: a number or a 0-d tensor; one on a device is waited for.
    """
    norm = float(grad_norm)
    if math.isfinite(norm):
        return False
    _LOGGER.warning(
        "The gradient norm is %s. Expected a finite number: look at the loss and its inputs at this step; lower the "
        "learning rate, or skip the batch. In low precision, a loss scale that is too high does the same.",
        norm,
    )
    otel_ml.event("grad_norm.not_finite", {"value": str(norm)})
    return True
