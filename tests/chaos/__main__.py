"""Disturb a real job and count: `python -m tests.chaos --faults 200 --minutes 8 --seed 1`."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.compare import Table, compare
from tests.chaos.job import Job


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--faults", type=int, default=200, help="in all, half of them per mode")
    parser.add_argument("--minutes", type=float, default=8.0, help="in all")
    parser.add_argument("--mode", choices=["embedded", "serve", "both"], default="both")
    parser.add_argument("--keep", action="store_true", help="keep the runs, and say where they are")
    given = parser.parse_args()
    modes = ["embedded", "serve"] if given.mode == "both" else [given.mode]
    fine = True
    for number, mode in enumerate(modes):
        folder = Path(tempfile.mkdtemp(prefix="otel-ml-chaos-"))
        job = Job(folder, mode, given.seed + number, counted=mode == "serve")
        try:
            job.start()
            job.disturb(given.faults // len(modes), 60 * given.minutes / len(modes))
            job.finish()
            table = compare(job)
        finally:
            job.close()
        fine = shown(job, table, given.seed + number) and fine
        if given.keep or not fine:
            print(f"  kept: {folder}")
        else:
            shutil.rmtree(folder)
    return 0 if fine else 1


def shown(job: Job, table: Table, seed: int) -> bool:
    """Print the table; return whether nothing is lost or doubled."""
    lost, duplicated = table.lost.total(), table.duplicated.total()
    print(f"{job.mode}, seed {seed}: {job.injected.total()} faults, {len(job.lives)} processes")
    for kind, count in sorted(job.injected.items()):
        print(f"  {count:4} × {kind}")
    rows = {
        "values recorded": table.recorded,
        "sums checked": table.delivered,
        "lost": f"{lost} {dict(+table.lost) or ''}",
        "duplicated": f"{duplicated} {dict(+table.duplicated) or ''}",
        "amended": table.amended,
        "superseded by a restart": table.superseded,
        "too late": table.too_late,
        "longest stall of a step": f"{table.stall_s * 1e3:.1f} ms ({table.stall_without_s * 1e3:.1f} ms without us)",
    }
    for name, value in rows.items():
        print(f"  {name:26} {value}")
    for example in table.examples:
        print(f"    {example}")
    sys.stdout.flush()
    return not lost and not duplicated


if __name__ == "__main__":
    sys.exit(main())
