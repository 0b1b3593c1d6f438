"""The hyper-parameters of the demo."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """What the demo trains with.

    Attributes:
        batch_size: images of one rank in a step.
        evaluate_every: steps from one checkpoint to the next.
    """

    steps: int = 240
    batch_size: int = 32
    hidden: int = 128
    learning_rate: float = 0.1
    momentum: float = 0.9
    evaluate_every: int = 20
    seed: int = 7

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of a step: linear decay to a tenth."""
        return self.learning_rate * (1 - 0.9 * step / self.steps)
