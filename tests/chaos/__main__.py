"""Disturb a real job and count: `python -m tests.chaos`; for a night: `python -m tests.chaos --minutes 600`."""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.compare import Table, compare, evidence
from tests.chaos.disk import private_mounts
from tests.chaos.injector import Injector
from tests.chaos.job import Job
from tests.chaos.layout import LAYOUTS
from tests.chaos.report import Total, shown
from tests.chaos.schedule import schedule
from tests.collector.pipeline import OTELCOL
from tests.surroundings import forget

ROUND_MINUTES = 5.0
"""The longest round: what it leaves on disk is read by every backend's own reader."""

FINISH_S = 40.0
"""Of a round, for what is not disturbed: its start, its end, reading it back."""


@dataclass(frozen=True)
class Round:
    """One job in one mode."""

    mode: str
    seed: int
    faults: int
    minutes: float

    @property
    def command(self) -> str:
        """What repeats it."""
        what = f"--seed {self.seed} --faults {self.faults} --minutes {self.minutes:g}"
        return f"python -m tests.chaos --mode {self.mode} {what}"


def main() -> int:
    forget()
    given = arguments()
    has_disks = private_mounts()
    if not has_disks:
        print("This system allows no private mounts (unshare): full disks are left out.")
    total = Total()
    for one in rounds(given):
        folder = Path(tempfile.mkdtemp(prefix="otel-ml-chaos-"))
        table = played(one, folder, total, has_disks=has_disks)
        if table is None or not table.is_fine:
            total.failed.append(one.command)
            print(f"  evidence: {folder}\n  repeat:   {one.command}", flush=True)
        elif given.keep:
            print(f"  kept: {folder}")
        else:
            shutil.rmtree(folder)
    print("\n".join(total.lines()))
    return 1 if total.failed else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first round; by default the time")
    parser.add_argument("--faults", type=int, help="in all; by default 22 a minute")
    parser.add_argument("--minutes", type=float, default=9.0, help="in all; by default 9")
    parser.add_argument("--mode", choices=[*LAYOUTS, "all"], default="all")
    parser.add_argument("--keep", action="store_true", help="keep the runs, and say where they are")
    given = parser.parse_args()
    if given.mode in {"all", "collector"} and not OTELCOL.exists():
        parser.error(f"There is no Collector at {OTELCOL}. Run: make collector; or choose another --mode.")
    return given


def rounds(given: argparse.Namespace) -> list[Round]:
    """Divide minutes and faults among the modes, in rounds of at most `ROUND_MINUTES`."""
    modes = list(LAYOUTS) if given.mode == "all" else [given.mode]
    count = len(modes) * math.ceil(given.minutes / ROUND_MINUTES / len(modes))
    faults = round(22 * given.minutes) if given.faults is None else given.faults
    return [
        Round(modes[number % len(modes)], given.seed + number, math.ceil(faults / count), given.minutes / count)
        for number in range(count)
    ]


def played(one: Round, folder: Path, total: Total, *, has_disks: bool) -> Table | None:
    """Play a round, print its table, and return it; None where the job did not come to its end."""
    job = Job(folder, one.mode, one.seed, has_disks=has_disks)
    injector = Injector(job)
    began = time.monotonic()
    table = None
    try:
        job.start()
        seconds = max(one.minutes * 60 - FINISH_S, one.faults * 0.5)
        injector.inject(schedule(one.seed, job.layout, one.faults, seconds, disks=has_disks))
        job.finish()
        table = compare(job)
    except Exception:  # noqa: BLE001 (a round that fails is reported, and the next one is played)
        traceback.print_exc()
    finally:
        job.close()
        if table is None or not table.is_fine:
            evidence(job, folder / "evidence")
        job.disk.close()
        job.spools.close()
    total.add(injector.injected, table)
    print("\n".join(shown(one.mode, one.seed, injector, table, time.monotonic() - began)), flush=True)
    return table


if __name__ == "__main__":
    sys.exit(main())
