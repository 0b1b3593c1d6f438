"""The steps of this process: all axes, the current step of each, and which step is current where."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from itertools import count, islice
from time import time_ns
from typing import TYPE_CHECKING

from otel_ml._internal.run_scope import NOBODY, NOW, PROCESS, current_scope
from otel_ml._internal.safe_repr import exact_text
from otel_ml._internal.steps.axis import Axis, Step
from otel_ml.wire.attributes import DEFAULT_AXIS

if TYPE_CHECKING:
    from otel_ml._internal.steps.stage import Stage
    from otel_ml._internal.steps.step import At, StepBlock

__all__ = ["STEPS", "Steps", "current_step", "in_stage", "is_inside_a_step", "scope_steps"]

_GENERATIONS = count(1)


class Steps:
    """All axes of a run; those of the only one, or of the first of several, are `STEPS`.

    Attributes:
        wanted: what `set_step()` was told while recording was off, per axis.
        boundaries: grows whenever a step is entered or left.
        generation: no other run of this process has it, and at a fork it changes: steps of the parent mean nothing to
            its child.
        asked: a context has to be asked which step is current: `blocks_used`, or a stage is open.
        blocks_used: `step()` was used, or there are several runs.
        stage: the innermost stage of a context.
        staged: a stage is open somewhere in the process.
    """

    __slots__ = (
        "asked", "axes", "blocks", "blocks_used", "boundaries", "generation", "lock", "none", "process", "stage",
        "staged", "stages", "wanted",
    )  # fmt: skip

    asked: bool
    blocks_used: bool
    process: Step

    KEPT = 4096
    """Steps remembered per axis, so that a record at an old one adds to its running total."""

    SPARE = 16
    """By how many there are more before the oldest are forgotten, that many at once: to find the oldest, all that the
    dictionary has lost at its beginning is gone through, which takes longer than anything else of a step."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start with no axis and no step; whatever still points to an old step has none."""
        # Copies, each made in one call: other threads go on to new steps meanwhile.
        for axis in list(getattr(self, "axes", {}).values()):
            for step in list(axis.steps.values()):
                step.index, step.axis, step.ended, step.pending = None, None, True, None
        self.generation: int = next(_GENERATIONS)
        self.axes: dict[str, Axis] = {}
        self.none: Step = Step(None, None, self.generation)
        self.process = self.none
        self.boundaries: int = 0
        # New variables: contexts of tasks keep what was set in the old ones.
        self.blocks: ContextVar[StepBlock | At | None] = ContextVar("otel_ml_step", default=None)
        # Reentrant: a signal handler may set a step while the main thread is doing so.
        self.lock: threading.RLock = threading.RLock()
        self.blocks_used = self.asked = NOW.several
        self.staged: bool = False
        self.stage: ContextVar[Stage | None] = ContextVar("otel_ml_stage", default=None)
        self.stages: int = 0
        self.wanted: dict[object, object] = {}
        NOW.step = None if NOW.several else self.none

    def ask_contexts(self) -> None:
        """Have every call ask its context which step is current: there may be several runs."""
        with self.lock:
            self.blocks_used = self.asked = True
            NOW.step = None

    def axis(self, name: str) -> Axis:
        """Return the axis, made at first sight."""
        axis = self.axes.get(name)
        if axis is None:
            with self.lock:
                axis = self.axes.setdefault(name, Axis(exact_text(name)))
        return axis

    def step(self, axis: Axis, index: int) -> Step:
        """Return the one `Step` object of (axis, index)."""
        step = axis.steps.get(index)
        if step is None:
            with self.lock:
                step = self._new(axis, index)
        return step

    def _new(self, axis: Axis, index: int) -> Step:
        # setdefault(): another thread may have made it since the caller looked.
        step = axis.steps.setdefault(index, Step(axis, index, self.generation))
        if len(axis.steps) >= self.KEPT + self.SPARE:
            self._forget_oldest(axis)
        return step

    def _forget_oldest(self, axis: Axis) -> None:
        for index, oldest in tuple(islice(axis.steps.items(), self.SPARE)):
            # A signal handler that goes on to new steps here may have forgotten some of these already.
            if axis.steps.pop(index, None) is None:
                continue
            if not oldest.ended or oldest.points > oldest.said or oldest.pending is not None or oldest.waiting:
                axis.steps[index] = oldest  # still needed: the last in line now

    def set(self, axis_name: str, index: int) -> None:
        """Make (axis, index) the process-wide current step.

        Once a step, with cold caches: each function called and each lock taken costs as much as all of this in a loop.
        """
        axis = self.axes.get(axis_name) or self.axis(axis_name)
        # Captured CUDA graphs record: what they are launched for changes here (`cuda_graphs.py`).
        if NOW.boundary is not None:
            NOW.boundary()
        with self.lock:
            axis.explicit = True
            step = axis.steps.get(index) or self._new(axis, index)
            self._move(axis, step)
            self.boundaries += 1
            axis.entered = self.boundaries
            # Another axis is current only while the axis `step` has no step (docs/protocol.md §2.5).
            if axis_name == DEFAULT_AXIS or self._default_axis_unset():
                self.process = step
                NOW.step = None if self.asked else step

    def keep_baseline_apart(self, axis: Axis) -> None:
        """Have what was logged at step 0 be an object of its own, so that its names are told from those of a loop."""
        with self.lock:
            baseline = axis.steps[0]
            axis.first_of_loop = axis.steps[0] = step = Step(axis, 0, self.generation)
            # One step on the wire, whose watermark counts the points of both; `base` has what still comes for the
            # baseline count here.
            step.points, step.said, step.waiting = baseline.points, baseline.said, baseline.waiting
            step.ended = False
            baseline.base = step

    def fetch(self, axis_name: str, index: int, loop: object) -> None:
        """Have what is recorded from now on belong to a step that begins once there is an item for it, in `loop`.

        The step before stays entered: where a fetch hangs, that is how far this process has come.
        """
        axis = self.axes.get(axis_name) or self.axis(axis_name)
        axis.loop = loop
        step = axis.steps.get(index)
        # Then it is forgotten again if no item comes (`give_up_fetching()`).
        axis.is_fetched_new = step is None
        if step is None:
            with self.lock:
                step = self._new(axis, index)
        axis.fetched = step
        step.ended = False
        if axis_name == DEFAULT_AXIS or self._default_axis_unset():
            self.process = step
            NOW.step = None if self.asked else step

    def give_up_fetching(self, axis_name: str) -> None:
        """Know that there is no item: what was recorded for its step, and is not sent, belongs to the one before."""
        axis = self.axis(axis_name)
        with self.lock:
            step, axis.fetched = axis.fetched, None
            if step is None:
                return
            self._end(step)
            # What points to it by now is sent as a record of the step before. Of a step with points the watermark is
            # due.
            if axis.is_fetched_new and not step.points and step.index is not None:
                axis.steps.pop(step.index, None)
                step.base = axis.current or self.none
                step.index = step.base.index
            if self.process is step:
                self._use(axis.current or self._remaining() or self.none)

    def leave_loop(self, axis_name: str, loop: object) -> None:
        """Know that a loop is over; one that another loop on the axis has followed leaves nothing of that one's.

        Python closes a generator that nobody iterates over any longer when it comes to it: that of an `async for` at a
        later `await`, and one of a reference cycle at the next garbage collection.
        """
        axis = self.axis(axis_name)
        if axis.loop is loop:
            axis.loop = None
            # First: what was recorded for an item that never came belongs to the step that ends next.
            self.give_up_fetching(axis_name)
            self.end(axis_name)

    def end(self, axis_name: str) -> None:
        """Leave the current step of the axis: what is current then is what another axis says, or nothing."""
        axis = self.axis(axis_name)
        if NOW.boundary is not None:
            NOW.boundary()
        with self.lock:
            step = axis.current
            if step is None:
                return
            # A block on it is open elsewhere: its end is that of the block (`close()`).
            if not step.blocks:
                self._end(step)
            axis.current = None
            self.boundaries += 1
            self._leave(step)
            if self.process is step:
                self._use(self._remaining() or self.none)

    def at(self, axis_name: str, index: int) -> Step:
        """Return the step of a `log(step=)`; moves the current one only where nothing else does."""
        axis = self.axes.get(axis_name) or self.axis(axis_name)
        step = axis.steps.get(index) or self.step(axis, index)
        if not axis.explicit and axis.current is not step:
            if NOW.boundary is not None:
                NOW.boundary()
            with self.lock:
                self._move(axis, step)
                # On another axis only its own current step moves, not that of records that name no axis.
                if axis_name == DEFAULT_AXIS:
                    self._use(step)
        return step

    def open(self, axis_name: str, index: int) -> Step:
        """Enter a block."""
        axis = self.axis(axis_name)
        if NOW.boundary is not None:
            NOW.boundary()
        with self.lock:
            self.blocks_used = self.asked = axis.explicit = True
            NOW.step = None
            # Asked before this block itself enters a step of the axis.
            is_staged = self.staged and self.stage.get() is not None and not axis.is_entered
            step = self.step(axis, index)
            if index < axis.latest and step.ended_ns and not step.blocks:
                axis.second_pass.enter(index, axis.latest)
            step.blocks += 1
            step.ended = False
            axis.open[step] = None
            axis.latest = max(axis.latest, index)
            if is_staged:
                axis.note_stage()
            else:
                axis.staged = -1
            self.boundaries += 1
        return step

    def close(self, step: Step) -> None:
        """Leave a block."""
        with self.lock:
            # Its end is noted while it still has the block: the background thread asks for blocks first (`_end`).
            if step.axis is not None and step.blocks == 1 and step.axis.current is not step:
                self._end(step)
            step.blocks -= 1
            if step.axis is not None and not step.blocks:
                step.axis.open.pop(step, None)
                # No step is current: what is recorded after the block belongs to its step (docs/protocol.md §2.6).
                if self.process.index is None:
                    self._leave(step)
                    self._use(self.none)
            self.boundaries += 1

    def current(self, axis_name: str) -> Step:
        """Return the current step on one axis: of the innermost block on it, else the process-wide one."""
        block = self.blocks.get()
        while block is not None:
            if block.step.axis is not None and block.step.axis.name == axis_name:
                return block.step
            block = block.outer
        axis = self.axes.get(axis_name)
        return self.none if axis is None else axis.fetched or axis.current or self.none

    def _leave(self, step: Step) -> None:
        """Know what is current after a step, where nothing else is: no step, whose records belong to it (ADR 0034)."""
        if step.axis is not None and step.axis.name == DEFAULT_AXIS:
            self.none = Step(None, None, self.generation)
            self.none.base = step

    def _remaining(self) -> Step | None:
        """Return the step of the axis `step` where it has one, else of the axis set last that has one, else None."""
        # A copy, made in one call: the lock keeps other threads away, and not a signal handler that makes a new axis.
        set_by_user = [axis for axis in list(self.axes.values()) if axis.name == DEFAULT_AXIS or axis.explicit]
        newest = max(
            (axis for axis in set_by_user if axis.current is not None),
            key=lambda axis: (axis.name == DEFAULT_AXIS, axis.entered),
            default=None,
        )
        return newest.current if newest is not None else None

    def _default_axis_unset(self) -> bool:
        default = self.axes.get(DEFAULT_AXIS)
        return default is None or (default.current is None and default.fetched is None)

    def _move(self, axis: Axis, step: Step) -> None:
        before = axis.current
        if before is not None and before is not step and not before.blocks:
            self._end(before)
        axis.current = step
        step.ended = False
        index = step.index or 0
        if index > axis.latest:
            axis.latest = index
        # It was left before, and is entered again below the latest one.
        elif index < axis.latest and step.ended_ns and before is not step:
            axis.second_pass.enter(index, axis.latest)

    def _end(self, step: Step) -> None:
        # Called before the step is left: the background thread, which takes no lock, would else find a step that is
        # left since its end before, or since 1970, and say that all of it was sent.
        step.ended_ns = time_ns()
        step.ended = True

    def _use(self, step: Step) -> None:
        self.process = step
        # None where contexts have to be asked: then a record does not take the short way.
        NOW.step = None if self.asked else step

    def count_asking(self, more: int) -> None:
        """Know that a context that has to be asked was entered (1) or left (-1): after the last all is fast again.

        A stage that was entered before a fork is left in a child that does not know it.
        """
        with self.lock:
            self.stages = max(0, self.stages + more)
            self.staged = self.stages > 0
            self.asked = self.blocks_used or self.staged
            NOW.step = None if self.asked else self.process


NOBODY.steps = Steps()
STEPS = PROCESS.steps = Steps()


def scope_steps() -> Steps:
    """Return the steps of the run that a call is for."""
    return current_scope().steps if NOW.several else STEPS


def current_step() -> Step:
    """Return the step a record without `step=` belongs to; `STEPS.none` where there is none.

    The innermost block decides; else axis `step` where it is set; else the axis set last. Inside a stage it is the
    step as the stage sees it.
    """
    steps = current_scope().steps if NOW.several else STEPS
    block = steps.blocks.get()
    step = steps.process if block is None else block.step
    return in_stage(step, steps) if steps.staged else step


def is_inside_a_step() -> bool:
    """Whether the program said which step it is in; a step that was only logged at does not count."""
    axis = current_step().axis
    return axis is not None and axis.explicit


def in_stage(step: Step, steps: Steps) -> Step:
    """Return `step`, one of `steps`, as the stage of this context sees it; itself where there is none."""
    stage = steps.stage.get()
    return step if stage is None else stage.seen(step)
