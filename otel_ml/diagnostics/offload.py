"""ROLL's `state_offload_manager`: a worker's operation between loading and offloading its states."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Protocol

from otel_ml.diagnostics.operation import Measurement, Operation

__all__ = ["Offloading", "state_offload_manager", "state_offload_manger"]

_GIB = 2**30


class Offloading(Protocol):
    """What of a strategy is used."""

    def load_states(self, *args: Any, **kwargs: Any) -> Any:
        """Bring the states onto the device."""

    def offload_states(self, *args: Any, **kwargs: Any) -> Any:
        """Take the states off the device."""


@contextlib.contextmanager
def state_offload_manager(
    strategy: Offloading,
    metrics: MutableMapping[str, Any] | None,
    metric_infix: str,
    is_offload_states: bool = True,
    load_kwargs: Mapping[str, Any] | None = None,
) -> Iterator[Measurement]:
    """Load the strategy's states, run the block, offload them, and measure it as `otel_ml.operation()` does.

    With `metrics`, the numbers are put there under ROLL's names, in seconds, GiB and shares, and whoever logs them
    records them; with None they are recorded into the run right away, in seconds and bytes.

    Args:
        strategy: what is loaded and offloaded.
        metrics: to be filled.
        metric_infix: cluster and work, such as `"actor_train/train_step"`.
        is_offload_states: offload at the end; otherwise the states stay loaded.
        load_kwargs: for `strategy.load_states()`.
    """
    with contextlib.ExitStack() as stack:
        if metrics is None:
            measured: Measurement = stack.enter_context(Operation(metric_infix))
        else:
            measured = Measurement(metric_infix)
            measured.begin()
            # Behind the block, also where that raises: what was measured until then is in `metrics`.
            stack.callback(_fill, metrics, measured)
        with measured.onload():
            strategy.load_states(**(load_kwargs or {}))
        yield measured
        if is_offload_states:
            with measured.offload():
                strategy.offload_states()


state_offload_manger = state_offload_manager
"""ROLL's own spelling."""


def _fill(metrics: MutableMapping[str, Any], measured: Measurement) -> None:
    measured.end()
    for name, value in measured.values.items():
        # Shares of the device's memory have no unit.
        in_bytes = name.startswith("memory/") and "_frac/" not in name
        metrics[name] = value / _GIB if in_bytes else value
