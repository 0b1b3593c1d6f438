"""Says that a gradient is not finite, naming the tensor, once its statistics are known."""

from __future__ import annotations

from otel_ml.warn_once import reporter

__all__ = ["NonFiniteWatch"]


class NonFiniteWatch:
    """Is told by whoever knows them: the training thread, or the one that reads what has come from a device."""

    def __init__(self) -> None:
        self._is_said = False

    def found(self, bad: list[str], step: int | None) -> None:
        """Say the names of what is bad at a step, the first time; the rest is counted in `grad/nonfinite`."""
        if not bad or self._is_said:
            return
        self._is_said = True
        where = "a step" if step is None else f"step {step}"
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        reporter.say(
            "gradient-not-finite",
            f"The gradient of {bad[0]!r}{more} is NaN or Inf at {where}. See grad/nonfinite for the steps after it; "
            "lower the learning rate or the loss scale if it lasts.",
        )
