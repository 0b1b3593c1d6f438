"""Which worker records, and which batches: first the worker is asked, then the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from otel_ml.exceptions import ConfigError

__all__ = ["Gate"]


@dataclass(frozen=True)
class Gate:
    """`log_freq` and `log_on_workers` of a logger.

    Attributes:
        log_freq: `"epoch"` records nothing of single batches, `"batch"` all, a number each n-th, from batch 0 on.
        log_on_workers: a rank, several, -1 for all, or None for none.

    Raises:
        ConfigError: a ValueError; `log_freq` is neither of the words nor a positive whole number.

    Examples:
        >>> gate = Gate(log_freq=2, log_on_workers=[0, 3])
        >>> [gate.lets_pass(rank=3, batch_idx=batch) for batch in (None, 0, 1, 2)]
        [True, True, False, True]
        >>> gate.lets_pass(rank=1, batch_idx=None)
        False
    """

    log_freq: str | int = "epoch"
    log_on_workers: int | Sequence[int] | None = 0

    def __post_init__(self) -> None:
        is_number = isinstance(self.log_freq, int) and not isinstance(self.log_freq, bool) and self.log_freq > 0
        if not is_number and self.log_freq not in {"epoch", "batch"}:
            raise ConfigError(
                f"log_freq={self.log_freq!r} was given. Expected 'epoch', 'batch' or a positive whole number."
            )

    @property
    def _chosen(self) -> Sequence[int]:
        if self.log_on_workers is None:
            return ()
        return (self.log_on_workers,) if isinstance(self.log_on_workers, int) else self.log_on_workers

    @property
    def has_several(self) -> bool:
        """Whether more than one worker may record."""
        chosen = self._chosen
        return len(chosen) > 1 or -1 in chosen

    def lets_worker_pass(self, rank: int) -> bool:
        """Whether this worker records at all."""
        chosen = self._chosen
        return -1 in chosen or rank in chosen

    def lets_pass(self, rank: int, batch_idx: int | None) -> bool:
        """Whether something of this worker and batch is recorded; without a batch it is."""
        if not self.lets_worker_pass(rank):
            return False
        if batch_idx is None or self.log_freq == "batch":
            return True
        return isinstance(self.log_freq, int) and batch_idx % self.log_freq == 0
