"""One axis and its steps: what a record points to, and how far the axis is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_ml._internal.series.pending import StepPartials
    from otel_ml._internal.steps.stage import Stage

__all__ = ["Axis", "SecondPass", "Step"]

_CERTAIN = 16
"""Steps one after the other, also in several passes through all there are. Fewer come again by chance, as samples do at
the versions of a policy that made them."""


class SecondPass:
    """A program that goes through steps of an axis again, as a loop does that counts anew in each epoch.

    Attributes:
        first, last: of the steps entered one after the other, all below the latest one.
        latest: the latest step when that began. Where it grows meanwhile, another thread goes on, or what is entered
            again is a value that comes late.
        found: the steps that were gone through again, when that was certain.
        after: the latest step then.
    """

    __slots__ = ("_count", "_lowest", "after", "first", "found", "last", "latest")

    def __init__(self) -> None:
        # Not -1, which step 0 would follow.
        self.first: int = -2
        self.last: int = -2
        self.latest: int = -1
        self.found: range = range(0)
        self.after: int = -1
        self._count: int = 0
        self._lowest: float = float("inf")

    def enter(self, index: int, latest: int) -> None:
        """Know that a step below the latest one, which was left before, was entered again."""
        self._lowest = min(self._lowest, index)
        # Another thread goes on, or this step does not follow the one before: the count begins anew.
        if latest != self.latest or (index != self.last + 1 and not self._begins_anew(index)):
            self.first, self.latest, self._count = index, latest, 0
        self.last = index
        self._count += 1
        if self._count >= _CERTAIN:
            self.found, self.after = range(self.first, index + 1), latest

    def may_hold(self, index: int) -> bool:
        """Whether this step was entered again by what is, or may become, a second pass."""
        return self.first <= index <= self.last or index in self.found

    def _begins_anew(self, index: int) -> bool:
        """Whether a pass through all steps, from the first one to the one before the latest, is followed by another."""
        return index == self.first == self._lowest and self.last == self.latest - 1


class Step:
    """One step of one axis (or, with `index` None, no step at all): what a record points to.

    Attributes:
        ended: nobody is inside it anymore; may become False again.
        ended_ns: when it ended last.
        blocks: `with step()` blocks open on it.
        points: sent for it so far, without those the spool dropped.
        said: points in its last watermark.
        last_ns: time of its newest record that was collected.
        waiting: device values not read yet; its watermark waits for them.
        spans: timers begun in it that kept their span.
        pending: what the next collection will encode; guarded by the fold lock.
        generation: whose it is, see `Steps.generation`.
        base: of a step as a stage of the program sees it, the step itself; of no step at all, the step of the default
            axis that was left last: what is recorded after it belongs there.
        stage: the stage that sees it so.
    """

    __slots__ = (
        "axis", "base", "blocks", "ended", "ended_ns", "generation", "index", "last_ns",
        "pending", "points", "said", "spans", "stage", "waiting",
    )  # fmt: skip

    def __init__(self, axis: Axis | None, index: int | None, generation: int) -> None:
        self.axis: Axis | None = axis
        self.index: int | None = index
        self.generation: int = generation
        self.ended: bool = True
        self.ended_ns: int = 0
        self.blocks: int = 0
        self.points: int = 0
        self.said: int = 0
        self.last_ns: int = 0
        self.waiting: int = 0
        self.spans: int = 0
        self.pending: StepPartials | None = None
        self.base: Step | None = None
        self.stage: Stage | None = None

    def __repr__(self) -> str:
        return f"Step({self.axis.name if self.axis else None!r}, {self.index})"


class Axis:
    """The steps of one axis.

    Attributes:
        current: the process-wide step, or None.
        entered: `Steps.boundaries` when `set_step()` was last used on it.
        latest: the largest step entered.
        counted: the last one that a loop entered, -1 before.
        explicit: `set_step()` or `step()` was used on it: `log(step=)` moves nothing from then on.
        fetched: the step for which a loop fetches an item, which is entered when that is there; or None.
        first_of_loop: step 0 of a loop, where something was logged at step 0 before; or None.
        is_fetched_new: nobody knew that step before.
        loop: the one that has begun its steps last, and goes on; or None.
        open: the steps that have open blocks.
        second_pass: whether steps below the latest are gone through again.
        staged: the latest step, while blocks and loops in a stage have entered all there are, else -1.
        staged_at: `Steps.boundaries` when a loop in a stage entered its last one.
    """

    __slots__ = (
        "counted", "current", "entered", "explicit", "fetched", "first_of_loop", "is_fetched_new", "latest", "loop",
        "name", "open", "second_pass", "staged", "staged_at", "steps",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.steps: dict[int, Step] = {}
        self.current: Step | None = None
        self.latest: int = -1
        self.counted: int = -1
        self.entered: int = 0
        self.explicit: bool = False
        self.fetched: Step | None = None
        self.first_of_loop: Step | None = None
        self.is_fetched_new: bool = False
        self.loop: object = None
        self.open: dict[Step, None] = {}
        self.second_pass: SecondPass = SecondPass()
        self.staged: int = -1
        self.staged_at: int = 0

    def following(self) -> int:
        """The step after the largest one entered; 0 after a baseline alone, at step 0: no step was done with it.

        That is what `log(step=0)` has recorded, and what was recorded in a stage.
        """
        return self.latest + 1 if self.latest > 0 or (self.explicit and self.is_entered) else 0

    @property
    def is_entered(self) -> bool:
        """Whether the program has entered a step of it outside of stages."""
        return self.latest > self.staged or self.entered > self.staged_at

    @property
    def is_only_block_0(self) -> bool:
        """Whether blocks on step 0, which may be a baseline or a step of training, are all that has entered one."""
        return self.explicit and self.latest == 0 > self.staged and not self.entered

    def note_stage(self) -> None:
        """Know that its latest step was entered in a stage."""
        self.staged, self.staged_at = self.latest, self.entered

    def inside(self) -> Step | None:
        """The largest step the process is inside of by `set_step()` or `step()`, or None."""
        if not self.explicit:
            return None
        # Copied in one call, as other threads enter and leave blocks meanwhile.
        candidates = list(self.open)
        if self.current is not None:
            candidates.append(self.current)
        return max(candidates, key=lambda step: step.index or 0, default=None)
