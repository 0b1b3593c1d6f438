"""Say where training diverges: a gradient norm that is not a finite number."""

from __future__ import annotations

import logging
import math
import os
from typing import Any

import otel_ml
from otel_ml.compat.tracking.run_of_the_job import has_run

__all__ = ["warn_if_inf_grad_norm"]

_LOGGER = logging.getLogger(__name__)


def warn_if_inf_grad_norm(grad_norm: Any) -> bool:
    """Record the event `grad_norm.not_finite` where `grad_norm` is infinite or NaN, and warn on rank 0 (`RANK`).

    Args:
        grad_norm: a number or a tensor, waited for where it is on a device; None is not a norm.

    Returns:
        Whether some of it is not finite.
    """
    if grad_norm is None:
        return False
    # The sum of finite norms is finite; with an infinite one or a NaN it is not.
    norm = float(grad_norm.detach().double().sum()) if hasattr(grad_norm, "detach") else float(grad_norm)
    if math.isfinite(norm):
        return False
    if os.environ.get("RANK", "0") == "0":
        _LOGGER.warning(
            "The gradient norm is %s. Expected a finite number: look at the loss and its inputs at this step; lower "
            "the learning rate, or skip the batch. In low precision, a loss scale that is too high does the same.",
            norm,
        )
    if has_run():
        otel_ml.event("grad_norm.not_finite", {"value": str(norm)})
    return True
