"""`kind="watch"`: the gradients of a model as histograms, every so many backward passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import otel_ml

__all__ = ["watch"]

LOG_FREQ = 1000
"""Backward passes between two histograms, as W&B's `watch()` has it."""


def watch(model: Any, prefix: str, *, log: str = "gradients", log_freq: int = LOG_FREQ) -> list[Any]:
    """Record the gradient of each parameter of `model` at the first backward pass and each `log_freq`-th after it.

    Args:
        model: a `torch.nn.Module`.
        prefix: before `gradients/<parameter>`.
        log: `"gradients"`, `"parameters"` or `"all"`.
        log_freq: backward passes between two.

    Returns:
        The hooks; `remove()` of each ends it.
    """
    return [
        parameter.register_hook(_hook(name, parameter, prefix, log, max(1, int(log_freq))))
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    ]


def _hook(name: str, parameter: Any, prefix: str, log: str, log_freq: int) -> Callable[[Any], None]:
    passes = 0
    before = f"{prefix}/" if prefix else ""

    def hook(gradient: Any) -> None:
        nonlocal passes
        passes += 1
        if (passes - 1) % log_freq:
            return
        if log in {"gradients", "all"}:
            otel_ml.log_histogram(f"{before}gradients/{name}", gradient)
        if log in {"parameters", "all"}:
            otel_ml.log_histogram(f"{before}parameters/{name}", parameter)

    return hook
