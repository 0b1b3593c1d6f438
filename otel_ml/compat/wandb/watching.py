"""`wandb.watch()`: how the gradients and the parameters of a torch model are distributed.

The device counts, and only the counts are copied: nobody waits for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import otel_ml
from otel_ml._internal.safe_repr import safe_repr
from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.compat.wandb.media import Media
from otel_ml.never_raises import never_raises

__all__ = ["Watched"]

_BINS = 64
_LOGS = ("gradients", "parameters", "all", None)


class Watched:
    """The models of a run that are watched, and their hooks.

    Args:
        log: records distributions by name in the row that is open.
    """

    def __init__(self, log: Callable[[Mapping[str, Media]], None]) -> None:
        self._log = log
        self._hooks: dict[int, list[Any]] = {}
        self._next = 0

    def watch(self, models: Any, log: str | None, log_freq: int, first: int | None, *, log_graph: bool) -> None:
        """Look at every `log_freq`-th pass of some models; `first` is the number of the first one in the names."""
        torch = sys.modules.get("torch")  # where it is not there, nothing is a model
        given = tuple(models) if isinstance(models, (tuple, list)) else (models,)
        wrong = [model for model in given if torch is None or not isinstance(model, torch.nn.Module)]
        if wrong:
            not_kept(
                "wandb.watch()",
                f"TypeError: Expected a pytorch model (torch.nn.Module), got {safe_repr(wrong[0])}. It is not watched.",
            )
            return
        if log not in _LOGS:
            said = "ValueError: log must be one of 'gradients', 'parameters', 'all', or None"
            not_kept(f"wandb.watch(log={safe_repr(log)})", f"{said}. The model is not watched.")
            return
        number = self._next if first is None else first
        for index, model in enumerate(given, number):
            # W&B's names: the first model has no prefix, and the others' ends without a slash: `graph_1conv.bias`.
            self._hook(model, f"graph_{index}" if index else "", log, log_freq)
            if log_graph:
                not_kept("wandb.watch(log_graph=True)", "the model is kept as the text that it prints as.")
                otel_ml.log_text(f"graph_{index}", str(model))
        self._next += len(given)

    def unwatch(self, models: Any = None) -> None:
        """Look at these models no longer, or at none of all."""
        given = models if isinstance(models, (tuple, list)) else (models,)
        of_which = list(self._hooks) if not models else [id(model) for model in given]
        for model in of_which:
            for hook in self._hooks.pop(model, ()):
                hook.remove()

    def _hook(self, model: Any, prefix: str, log: str | None, log_freq: int) -> None:
        # A model that is watched again, as with another `log`, has the hooks of both.
        hooks = self._hooks.setdefault(id(model), [])
        if log in {"parameters", "all"}:
            is_due = _every(log_freq)

            @never_raises
            def after_forward(model: Any, *_: Any) -> None:
                if is_due():
                    self._keep((f"parameters/{prefix}{name}", tensor) for name, tensor in model.named_parameters())

            hooks.append(model.register_forward_hook(after_forward))
        if log in {"gradients", "all"}:
            for name, parameter in model.named_parameters():
                if parameter.requires_grad:
                    hooks.append(parameter.register_hook(self._of_gradient(f"gradients/{prefix}{name}", log_freq)))

    def _of_gradient(self, name: str, log_freq: int) -> Callable[[Any], None]:
        is_due = _every(log_freq)

        # Autograd may call this in a thread of its own, in which no run is current: `_log` is the run's own method.
        @never_raises
        def after_backward(gradient: Any) -> None:
            if is_due():
                self._keep([(name, gradient)])

        return after_backward

    def _keep(self, tensors: Iterable[tuple[str, Any]]) -> None:
        if found := {name: _Distribution(*counted) for name, tensor in tensors if (counted := _counted(tensor))}:
            self._log(found)


def _every(times: int) -> Callable[[], bool]:
    """Return what is true at every so many-th call."""
    calls = 0

    def is_due() -> bool:
        nonlocal calls
        # Due at the last of so many, not at the first; `log_freq=0` is every pass.
        calls = (calls + 1) % max(1, times)
        return calls == 0

    return is_due


class _Distribution(Media):
    """Counts and edges, on whatever device they are."""

    def __init__(self, counts: Any, edges: Any) -> None:
        self._counts, self._edges = counts, edges

    def keep(self, name: str, step: int | None, axis: str | None) -> None:
        """Record it as a histogram."""
        otel_ml.log_histogram(name, self._counts, edges=self._edges, step=step, axis=axis)


def _counted(tensor: Any) -> Sequence[Any]:
    """Return counts and edges of the finite values of a tensor; nothing where it is empty, or a graph is captured."""
    import torch

    with torch.no_grad():
        values = tensor.detach()
        values = values.to_local() if hasattr(values, "to_local") else values
        # Nothing is counted while a CUDA graph is captured: hooks do not run again when it is replayed.
        if values.numel() == 0 or (values.is_cuda and torch.cuda.is_current_stream_capturing()):
            return ()
        values = (values.to_dense() if values.is_sparse else values).reshape(-1).float()
        is_finite = values.isfinite()
        low = torch.where(is_finite, values, float("inf")).min()
        high = torch.where(is_finite, values, float("-inf")).max()
        none, equal = low > high, low == high
        # Bounds that make a bin wide for values that are all equal, and where none is finite; decided on the device,
        # which nobody waits for.
        low = torch.where(none, -0.5, torch.where(equal, low - 0.5, low))
        high = torch.where(none, 0.5, torch.where(equal, high + 0.5, high))
        bins = torch.where(is_finite, (values - low) / (high - low) * _BINS, 0).long().clamp_(0, _BINS - 1)
        # A value that is not finite is counted 0 times in bin 0.
        counts = torch.zeros(_BINS, dtype=torch.long, device=values.device).index_add_(0, bins, is_finite.long())
        # MPS has no float64. Edges in float32 could come out equal for a narrow range of large values.
        exact = torch.float32 if values.device.type == "mps" else torch.float64
        edges = low.to(exact) + (high - low).to(exact) / _BINS * torch.arange(_BINS + 1, device=values.device)
        return counts, edges
