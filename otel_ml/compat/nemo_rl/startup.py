"""What a script calls as it starts: how long that took until now, colored log lines, and a folder of its own."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

import otel_ml
from otel_ml.compat.tracking.printed import print_line
from otel_ml.compat.tracking.run_of_the_job import has_run

__all__ = ["configure_rich_logging", "get_next_experiment_dir", "log_container_init_timing", "startup_times"]

_LOGGER = logging.getLogger(__name__)

_TITLES = {
    "slurm_prologue": "slurm_prologue",
    "cluster_startup": "cluster_startup (orchestrator+container+ray)",
    "driver_startup": "driver_startup (launch+python+imports)",
    "total": "total",
}


def startup_times(environ: Mapping[str, str], now_s: float) -> dict[str, float]:
    """Return seconds by phase; phases whose times are not set, or are not numbers, are left out.

    Args:
        environ: may hold `SLURM_JOB_START_TIME`, `NRL_JOB_START_EPOCH`, `NRL_RAY_READY_EPOCH` (seconds since 1970).
        now_s: seconds since 1970.

    Examples:
        >>> startup_times({"NRL_JOB_START_EPOCH": "100", "NRL_RAY_READY_EPOCH": "130"}, 142.0)
        {'cluster_startup': 30.0, 'driver_startup': 12.0, 'total': 42.0}
    """
    slurm_s, job_s, ray_s = (
        _seconds(environ.get(name)) for name in ("SLURM_JOB_START_TIME", "NRL_JOB_START_EPOCH", "NRL_RAY_READY_EPOCH")
    )
    phases = {
        "slurm_prologue": (slurm_s, job_s),
        "cluster_startup": (job_s, ray_s),
        "driver_startup": (ray_s, now_s),
        # From the earliest time that is known; without Slurm's it begins with the job.
        "total": (job_s if slurm_s is None else slurm_s, now_s),
    }
    return {name: end - begin for name, (begin, end) in phases.items() if begin is not None and end is not None}


def log_container_init_timing() -> dict[str, float]:
    """Print the start-up phases; record them as parameters `startup.<phase>`, in seconds, and return them.

    It begins no run: to have them in the run, call it after the `Logger` is made. Without `NRL_JOB_START_EPOCH` it logs
    a warning, as in NeMo RL, and there are the phases whose times are set.
    """
    times = startup_times(os.environ, time.time())
    if not os.environ.get("NRL_JOB_START_EPOCH"):
        _LOGGER.warning(
            "Cannot detect container startup time: NRL_JOB_START_EPOCH not set. Export it in the launch script."
        )
    elif times:
        print_line(_table(times))
    if times and has_run():
        otel_ml.log_params({"startup": times})
    return times


def _table(times: Mapping[str, float]) -> str:
    lines = [f"  {_TITLES[name]}: {seconds:.1f}s" for name, seconds in times.items()]
    rule = "=" * 60
    return "\n".join(["", rule, "CONTAINER INIT TIMING".center(49).rstrip(), *lines, rule, ""])


def _seconds(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def configure_rich_logging(level: str = "INFO", show_time: bool = True, show_path: bool = True) -> None:
    """Write log lines with rich, where nobody has set up logging yet.

    Args:
        level: the lowest that is written.
        show_time: begin lines with the time.
        show_path: end lines with file and line number.
    """
    from rich.logging import RichHandler

    root = logging.getLogger()
    if root.handlers:
        return
    # No markup: a log line may hold any text, a model's answer too.
    handler = RichHandler(rich_tracebacks=True, show_time=show_time, show_path=show_path, log_time_format="[%X]")
    handler.setFormatter(logging.Formatter("%(message)s"))
    root.addHandler(handler)
    root.setLevel(level.upper())


_NUMBERED = re.compile(r"exp_(\d+)")
"""How a folder begins; `exp_007_baseline` has been renamed, and its number is taken all the same."""


def get_next_experiment_dir(base_log_dir: str | os.PathLike[str]) -> str:
    """Make the folder `exp_NNN` after the highest one in `base_log_dir`, and return its path.

    Jobs that start at once get folders of their own.
    """
    base = Path(base_log_dir)
    base.mkdir(parents=True, exist_ok=True)
    numbers = [int(match[1]) for entry in base.iterdir() if (match := _NUMBERED.match(entry.name))]
    number = max(numbers, default=0) + 1
    # mkdir() decides between jobs that have found the same number.
    while True:
        folder = base / f"exp_{number:03d}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return str(folder)
