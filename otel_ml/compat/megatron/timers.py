"""`Timers`: leveled, accumulating, restartable; values of all ranks meet in the service, not in a collective."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any

import otel_ml
from otel_ml._internal.safe_repr import safe_repr
from otel_ml.compat.megatron import distributed
from otel_ml.compat.megatron.names import published
from otel_ml.compat.megatron.timer_text import text_of
from otel_ml.compat.tracking.printed import print_line
from otel_ml.compat.tracking.step_axes import counted
from otel_ml.exceptions import ConfigError
from otel_ml.warn_once import say

__all__ = ["DummyTimer", "Timer", "Timers"]

MAX_LEVEL = 2

_REDUCTIONS = {"max": ("max", "count"), "minmax": ("max", "min", "count"), "all": ("max", "min", "count", "rank")}


class Timer:
    """Accumulates what runs between `start()` and `stop()`, on this process' clock.

    Each reader (`elapsed()`, `Timers.log()`, `Timers.write()`) resets for itself: a tracker that is written every
    iteration takes nothing from a report over a hundred.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._total = 0.0
        self._active = 0.0
        self._base = 0.0
        # Reader → the total at its last reset.
        self._marks: dict[str, float] = {}
        # Readers that have not reset themselves: they begin anew with the reset of any other.
        self._followers: set[str] = set()
        self._began: float | None = None

    def start(self, barrier: bool = False) -> None:
        """Begin. Nobody waits: neither for the device nor, with `barrier`, for other ranks."""
        _say_no_barrier(barrier)
        if self._began is not None:
            _say_wrong(self.name, "started twice; the first start counts", "Stop it before")
            return
        self._began = perf_counter()

    def stop(self, barrier: bool = False) -> None:
        """End, and add what ran."""
        _say_no_barrier(barrier)
        if self._began is None:
            _say_wrong(self.name, "stopped, and not started", "Start it first")
            return
        self._take(perf_counter())
        self._began = None

    def elapsed(self, reset: bool = True, barrier: bool = False) -> float:
        """Return the seconds since the last reset, running ones too; a running timer goes on."""
        _say_no_barrier(barrier)
        return self.since("elapsed", reset=reset)

    def active_time(self) -> float:
        """Return all seconds it ran until it was last stopped or read; never reset."""
        return self._active

    def set_elapsed(self, value: float) -> None:
        """Take a duration in seconds that was measured elsewhere, in place of what ran since the last reset.

        `active_time()` stays. What is not a number is reported, and not taken.
        """
        try:
            self._total, self._base = 0.0 + value, 0.0
        except TypeError:
            given = safe_repr(value, 40)
            _say_wrong(self.name, f"given set_elapsed({given}), expected seconds", "It keeps its own: give it a number")
            return
        self._marks.clear()

    def reset(self) -> None:
        """Begin at 0 again, stopped: what runs is not counted. `active_time()` stays."""
        self._began = None
        self._total = self._base = 0.0  # not a difference to what was: that of NaN would be NaN for ever
        self._marks.clear()

    def set_barrier_group(self, barrier_group: Any) -> None:
        """Not used: no timer waits for other ranks."""
        _say_no_barrier(barrier_group is not None)

    def since(self, reader: str, *, reset: bool) -> float:
        """Return the seconds since this reader's last reset.

        One that read without a reset leaves that to the others, as Megatron's training loop does: it writes, and has
        `log()` reset.
        """
        if self._began is not None:
            now = perf_counter()
            # Megatron stops a running timer to read it, and starts it again.
            self._take(now)
            self._began = now
        # A reader that has not reset yet has read since the last `reset()` of all.
        seconds = self._total - self._marks.get(reader, self._base)
        if reset:
            self._followers.discard(reader)
            self._marks.update(dict.fromkeys((reader, *self._followers), self._total))
        else:
            self._followers.add(reader)
        return seconds

    def _take(self, now: float) -> None:
        if self._began is not None:
            self._total += now - self._began
            self._active += now - self._began


class DummyTimer:
    """A timer above the level: measures nothing."""

    name = "dummy timer"

    def start(self, barrier: bool = False) -> None:
        """Do nothing."""

    def stop(self, barrier: bool = False) -> None:
        """Do nothing."""

    def reset(self) -> None:
        """Do nothing."""

    def set_elapsed(self, value: float) -> None:
        """Do nothing."""

    def set_barrier_group(self, barrier_group: Any) -> None:
        """Do nothing."""

    def elapsed(self, reset: bool = True, barrier: bool = False) -> float:
        """Return NaN: it was not measured, which is not 0. Reported once."""
        say(
            "compat-megatron",
            "A timer above the level of Timers was asked for its time; it has none, and NaN is returned. "
            "Raise timing_log_level, or ask timers of the level only.",
        )
        return math.nan

    def active_time(self) -> float:
        """Return NaN, as `elapsed()`."""
        return self.elapsed()


class Timers:
    """All timers of a process, by name.

    Args:
        log_level: 0 to 2; timers above it measure nothing. -1 is off.
        log_option: `max`, `minmax` or `all`: what is reported of all ranks.

    Raises:
        ConfigError: an argument is none of these; both in one message.
    """

    def __init__(self, log_level: int, log_option: str) -> None:
        problems = []
        if log_level not in range(-1, MAX_LEVEL + 1):
            problems.append(f"Timers: log_level is {log_level!r}, expected a whole number from -1 to {MAX_LEVEL}.")
        if log_option not in _REDUCTIONS:
            problems.append(f"Timers: log_option is {log_option!r}, expected one of {', '.join(_REDUCTIONS)}.")
        if problems:
            raise ConfigError(*problems)
        self._level = log_level
        self._option = log_option
        self._timers: dict[str, Timer] = {}
        self._levels: dict[str, int] = {}
        self._written: dict[str, int] = {}
        self._dummy = DummyTimer()

    def __call__(self, name: str, log_level: int | None = None) -> Timer | DummyTimer:
        """Return the timer, made at the first call; without a level it then has the highest."""
        timer = self._timers.get(name)
        if timer is None:
            level = MAX_LEVEL if log_level is None else log_level
            if level > MAX_LEVEL:
                _say_wrong(name, f"given level {level} of {MAX_LEVEL}", "It measures nothing: lower its level")
            if level > self._level:
                return self._dummy
            self._levels[name] = level
            timer = self._timers[name] = Timer(name)
        elif log_level not in {None, self._levels[name]}:
            has = self._levels[name]
            _say_wrong(name, f"given level {log_level}, and has {has}", "It keeps its level: give it one")
        return timer

    @property
    def names(self) -> Sequence[str]:
        """Of the timers that measure."""
        return tuple(self._timers)

    def get_all_timers_string(
        self, names: Sequence[str] | None = None, normalizer: float = 1.0, reset: bool = True, barrier: bool = False
    ) -> str | None:
        """Return the times of this rank as text, in ms; None where no timer has run.

        Nobody waits for other ranks, so the title says whose times these are. Those of all ranks are in the run, and
        `across_ranks_string()` returns them as the same text.
        """
        _say_no_barrier(barrier)
        rank, world = distributed.rank(), distributed.world_size()
        note = "" if world == 1 else f", rank {rank} alone (1 of {world})"
        seconds = self._seconds(names, "log", normalizer, reset)
        return text_of({name: {rank: value * 1e3} for name, value in seconds}, self._option, note)

    def log(
        self,
        names: Sequence[str] | None = None,
        rank: int | None = None,
        normalizer: float = 1.0,
        reset: bool = True,
        barrier: bool = False,
        write: Callable[[str], object] = print_line,
    ) -> None:
        """Print `get_all_timers_string()` on `rank`, by default the last one."""
        # On every rank, also where it is not printed: it resets.
        text = self.get_all_timers_string(names, normalizer, reset, barrier)
        if text is not None and distributed.rank() == (distributed.world_size() - 1 if rank is None else rank):
            write(text)

    def write(
        self,
        names: Sequence[str],
        writer: Any,
        iteration: int,
        normalizer: float = 1.0,
        reset: bool = True,
        barrier: bool = False,
    ) -> None:
        """Record `<name>-time` in seconds at `iteration`: called by every rank, reduced over all of them.

        The slowest rank keeps the name; `/count` is of how many ranks; `minmax` adds `/min`, `all` also `/rank_<r>`.

        Args:
            names: of the timers.
            writer: not used: every backend of the run gets the values.
            iteration: the step, None for the current one. A second call for it, as `write_to_wandb` after `write`,
                records nothing again.
            normalizer: seconds are divided by it.
            reset: what is written now does not count in the next `write()`; `log()` counts for itself.
            barrier: not used.
        """
        del writer
        _say_no_barrier(barrier)
        # Megatron's training loop calls write() and write_to_wandb() one after the other; the second would record the
        # rest of nearly nothing.
        new = [name for name in names if iteration is None or self._written.get(name) != iteration]
        values = {
            f"{published(name)}-time": value
            for name, value in self._seconds(new, "write", normalizer, reset)
            if value > 0
        }
        self._written.update(dict.fromkeys(new, iteration))
        if values:
            # `sum` within a rank, so that several calls for one step are one value of it, and `/count` is of ranks.
            otel_ml.log(values, step=counted(iteration), within="sum", reduce=_REDUCTIONS[self._option])

    write_to_wandb = write
    write_to_mlflow = write
    write_to_comet = write

    def _seconds(
        self, names: Iterable[str] | None, reader: str, normalizer: float, reset: bool
    ) -> list[tuple[str, float]]:
        if not _is_above_0(normalizer):
            say(
                "compat-megatron",
                f"Timers were given normalizer={normalizer!r}, expected a number above 0. Their times are not divided; "
                "pass the iterations since the last report.",
            )
            normalizer = 1.0
        chosen = dict.fromkeys(self._timers if names is None else names)  # read twice, it would have no time left
        known = [(name, self._timers[name]) for name in chosen if name in self._timers]
        return [(name, timer.since(reader, reset=reset) / normalizer) for name, timer in known]


def _is_above_0(number: Any) -> bool:
    try:
        return bool(number > 0)
    except TypeError:
        return False


def _say_no_barrier(asked: bool) -> None:
    if asked:
        say(
            "compat-megatron",
            "A timer was given a barrier: timers wait neither for other ranks nor for the device, so it is not used. "
            "Time of the device without waiting: otel_ml.timed(name, device='cuda').",
        )


def _say_wrong(name: str, what: str, do: str) -> None:
    say("compat-megatron", f"Timer {name!r} was {what}. {do}.")
