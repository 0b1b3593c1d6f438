"""`progress.txt`: what the jobs of a run did, one line each, and throughput across their restarts."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path

from otel_ml.compat.megatron import distributed
from otel_ml.compat.megatron.config import LoggerConfig
from otel_ml.warn_once import say

__all__ = ["ProgressLog", "append_to_progress_log", "progress_log"]

FILE = "progress.txt"
_TIME = "%Y-%m-%d %H:%M:%S"
_FLOPS = "Floating-point operations"


def append_to_progress_log(save_dir: str | PathLike[str] | None, string: str, barrier: bool = True) -> None:
    """Append a line with time, job and number of GPUs to `<save_dir>/progress.txt`, on rank 0.

    Args:
        save_dir: none: nothing is written.
        string: what happened; fields are separated by tabs.
        barrier: not used: the line is that of rank 0, and nobody waits for it.
    """
    del barrier
    if save_dir is not None and distributed.rank() == 0:
        _append(Path(save_dir), string, distributed.world_size(), time.time())


def progress_log(
    config: LoggerConfig, save_dir: str | PathLike[str] | None, floating_point_operations: float = 0.0
) -> ProgressLog | None:
    """Return the log where `log_progress` is set and there is a folder for it, else None."""
    is_wanted = config.log_progress and save_dir is not None
    return ProgressLog(str(save_dir), floating_point_operations) if is_wanted else None


def _append(save_dir: Path, string: str, world_size: int, now: float) -> None:
    when = datetime.fromtimestamp(now).strftime(_TIME)  # noqa: DTZ006 (local time, as the file has it)
    # Empty elsewhere, as in Megatron; `_lines()` reads such a line, too.
    job = os.environ.get("SLURM_JOB_ID", "")
    try:
        save_dir.mkdir(parents=True, exist_ok=True)
        with (save_dir / FILE).open("a", encoding="utf-8") as file:
            file.write(f"{when}\tJob ID: {job}\t# GPUs: {world_size}\t{string}\n")
    except OSError as error:
        say(
            "compat-megatron",
            f"Nothing was added to {FILE}: {error}. Training goes on; free space or correct the path.",
        )


class ProgressLog:
    """Writes the lines of a job's life, with its throughput.

    Args:
        save_dir: of `progress.txt`.
        floating_point_operations: done before this job, as its checkpoint has them; 0 in a new run.
        world_size: of this job.
        now: seconds since 1970; the clock by default.
    """

    def __init__(
        self,
        save_dir: str | PathLike[str],
        floating_point_operations: float = 0.0,
        *,
        world_size: int | None = None,
        now: float | None = None,
    ) -> None:
        self._save_dir = Path(save_dir)
        self._world_size = world_size or distributed.world_size()
        self._flops_before = floating_point_operations
        self._began = time.time() if now is None else now
        self._line("Starting job", self._began)

    def saved(
        self,
        iteration: int,
        floating_point_operations: float,
        tokens: float,
        *,
        is_async: bool = False,
        now: float | None = None,
    ) -> None:
        """A checkpoint is saved, or is being saved: then call `committed()` once it is.

        Args:
            iteration: of the checkpoint.
            floating_point_operations: of the whole run so far, over its jobs.
            tokens: of the whole run so far.
            is_async: it is written in the background.
            now: seconds since 1970; the clock by default.
        """
        at = time.time() if now is None else now
        fields = [
            "Saving async checkpoint" if is_async else "Saved checkpoint",
            f"Iteration: {iteration}",
            f"Job throughput: {self.job_throughput(floating_point_operations, at):.1f} TFLOP/s/GPU",
            f"Cumulative throughput: {self.cumulative_throughput(floating_point_operations, at):.1f} TFLOP/s/GPU",
            f"{_FLOPS}: {floating_point_operations:.2e}",
            f"Tokens (in billions): {tokens / 1e9:.2f}",
        ]
        self._line("\t".join(fields), at)

    def committed(self, iteration: int, *, now: float | None = None) -> None:
        """The checkpoint that was being saved is complete."""
        self._line(f"Saved async checkpoint\tIteration: {iteration}", time.time() if now is None else now)

    def job_throughput(self, floating_point_operations: float, now: float) -> float:
        """Return what this job did, in TFLOP/s per GPU."""
        return self._rate(floating_point_operations - self._flops_before, now - self._began)

    def cumulative_throughput(self, floating_point_operations: float, now: float) -> float:
        """Return what the jobs of this size did since the first of them began, the time between them included."""
        began, done_before = self._first_of_this_size()
        return self._rate(floating_point_operations - done_before, now - began)

    def _first_of_this_size(self) -> tuple[float, float]:
        """Return when the first job of the newest row of jobs of this size began, and what was committed by then."""
        committed, saving = 0.0, dict[str, float]()
        first: tuple[float, float] | None = None
        for line in _lines(self._save_dir / FILE):
            # A job of another size ends the row: throughput per GPU is of jobs of one size.
            if line.gpus != self._world_size:
                first = None
            elif line.what == "Starting job" and first is None:
                first = (line.time, committed)
            # `Saving async checkpoint` has the operations, and the later `Saved async checkpoint` only the iteration.
            # `Saved checkpoint` has both, so they are noted before they are looked up.
            if (flops := _number(line.fields.get(_FLOPS))) is not None:
                saving[line.fields.get("Iteration", "")] = flops
            if line.what.startswith("Saved"):
                committed = saving.get(line.fields.get("Iteration", ""), committed)
        # No job of this size begins in it, as where it cannot be read: then it is this job alone.
        return first or (self._began, self._flops_before)

    def _rate(self, flops: float, seconds: float) -> float:
        return flops / seconds / self._world_size / 1e12 if seconds > 0 else 0.0

    def _line(self, string: str, now: float) -> None:
        if distributed.rank() == 0:
            _append(self._save_dir, string, self._world_size, now)


def _number(text: str | None) -> float | None:
    """Return a number; None where the line of a job that was killed, or whose disk was full, ends before it."""
    try:
        return float(text or "")
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class _Line:
    time: float
    gpus: int
    what: str
    fields: dict[str, str]


def _lines(path: Path) -> Iterator[_Line]:
    """Yield the lines that can be read; a field is found by its name, so that lines of others may stand between."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        when, *parts = line.split("\t")
        fields = {name: value for name, colon, value in (part.partition(": ") for part in parts) if colon}
        # Where no job id is known the part is `Job ID:` and nothing behind it.
        what = next((part for part in parts if ": " not in part and not part.startswith("Job ID")), "")
        try:
            began = datetime.strptime(when, _TIME).timestamp()  # noqa: DTZ007 (local time)
            yield _Line(began, int(fields["# GPUs"]), what, fields)
        except (ValueError, KeyError):
            continue
