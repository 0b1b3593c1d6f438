"""Where one writer stands on one attempt: which of its steps were heard of, and which are known to be complete."""

from __future__ import annotations

from dataclasses import dataclass, field

from otel_ml_service.aggregation.intervals import IntervalSet

__all__ = ["Progress"]


@dataclass(slots=True)
class Progress:
    """Where a writer stands on one attempt.

    Attributes:
        first: the lowest step it delivered.
        previous, current: the last two steps it delivered, as points or watermark.
        arrived_at: active time of its newest point or watermark here.
        left: it was quiet for too long; until it delivers two steps in a row it is not a member.
        done_through: the highest step whose watermark arrived with everything the writer sent before it.
        watermarks: (seq, step) of watermarks before which something is still missing.
    """

    first: int | None = None
    previous: int | None = None
    current: int | None = None
    arrived_at: float = 0.0
    left: bool = False
    done_through: int = -1
    watermarks: list[tuple[int, int]] = field(default_factory=list)

    @property
    def is_silent(self) -> bool:
        """Whether nothing was delivered since it left."""
        return self.left and self.current is None

    def deliver(self, step: int, active: float, known: IntervalSet) -> None:
        """Note a point or watermark of `step`; the last two are the two highest, in whatever order they arrive.

        Who had left returns once it has delivered two steps in a row, of those `known` on the attempt.
        """
        self.arrived_at = active
        if self.first is None or step < self.first:
            self.first = step
        if self.current is None or step > self.current:
            self.previous, self.current = self.current, step
        elif step < self.current and (self.previous is None or step > self.previous):
            self.previous = step
        if self.left and self.previous is not None and self.current is not None:
            # Steps that nobody had are not passed over: numbers may go up by more than one.
            self.left = known.any_between(self.previous, self.current)

    def finish(self, step: int, seq: int, floor: int) -> None:
        """Note the watermark of a step; it counts once everything up to its running number has arrived."""
        if seq <= floor:
            self.done_through = max(self.done_through, step)
        else:
            self.watermarks.append((seq, step))

    def raise_to(self, floor: int) -> None:
        """Count the watermarks that had to wait for what was sent before them."""
        reached = [step for seq, step in self.watermarks if seq <= floor]
        if reached:
            self.watermarks = [entry for entry in self.watermarks if entry[0] > floor]
            self.done_through = max(self.done_through, *reached)

    def leave(self) -> None:
        """Stop counting as a member until two further steps in a row are delivered."""
        self.left, self.previous, self.current = True, None, None
