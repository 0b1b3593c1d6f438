"""One axis and its steps: what a record points to, and how far the axis is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_ml._internal.steps.second_pass import SecondPass

if TYPE_CHECKING:
    from otel_ml._internal.series.pending import StepPartials
    from otel_ml._internal.steps.stage import Stage

__all__ = ["Axis", "Step"]


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
        open: the steps that have open blocks.
        second_pass: whether steps below the latest are gone through again.
        staged: the latest step, while blocks and loops in a stage have entered all there are, else -1.
        staged_at: `Steps.boundaries` when a loop in a stage entered its last one.
    """

    __slots__ = (
        "counted", "current", "entered", "explicit", "fetched", "first_of_loop", "is_fetched_new", "latest", "name",
        "open", "second_pass", "staged", "staged_at", "steps",
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
        candidates = list(self.open)
        if self.current is not None:
            candidates.append(self.current)
        return max(candidates, key=lambda step: step.index or 0, default=None)
