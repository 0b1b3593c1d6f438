"""`make bench`: measure everything, hold it against the targets and the last recorded figures, write the page.

python -m tests.benchmarks [--quick | --long] [--only NAME…] [--write]
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence

import psutil

from tests.benchmarks import (
    calls,
    cold_step,
    collectives,
    compat,
    contexts,
    curves,
    device_tensor,
    diagnostics,
    encoding,
    exporters,
    findings,
    imports,
    long_run,
    memory,
    only_python,
    peers,
    profiles,
    ranks,
    throughput,
    training_loop,
    wire,
)
from tests.benchmarks.figures import Found
from tests.benchmarks.gpu import measured as gpu
from tests.benchmarks.gpu.behind import behind, commit
from tests.benchmarks.gpu.targets import GPU_TARGETS
from tests.benchmarks.machine import described, has_gpu
from tests.benchmarks.plots import draw
from tests.benchmarks.profiles import IMAGES
from tests.benchmarks.recorded import Part, Recorded, worse
from tests.benchmarks.report import image_of, target_table
from tests.benchmarks.sizes import SIZES, Size
from tests.benchmarks.targets import TARGETS

PARTS: Mapping[str, Callable[[Size], Found]] = {
    "calls": calls.measure,
    "only_python": only_python.measure,
    "peers": peers.measure,
    "compat": compat.measure,
    "collectives": collectives.measure,
    "cold_step": cold_step.measure,
    "device_tensor": device_tensor.measure,
    "training_loop": training_loop.measure,
    "diagnostics": diagnostics.measure,
    "contexts": contexts.measure,
    "encoding": encoding.measure,
    "wire": wire.measure,
    "memory": memory.measure,
    "imports": imports.measure,
    "exporters": exporters.measure,
    "throughput": throughput.measure,
    "ranks": ranks.measure,
    "findings": findings.measure,
    "long_run": long_run.measure,
    "curves": curves.measure,
    "profiles": profiles.measure,
    "gpu": gpu.measure,
}

NO_GPU = 3
"""Exit status where a GPU is asked for and there is none: neither measured nor failed."""

LOOK_S = 2
"""Before the first part: what others do then, they do during the run."""


def measured(names: Sequence[str], size: Size) -> tuple[Recorded, list[str]]:
    """Measure the parts; return what they found, and which failed: one must not take the others with it."""
    load, machine, found, failed = cores_in_use(), described(), {}, []
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    for name in names:
        print(f"{name} …", end=" ", flush=True)
        began = time.monotonic()
        try:
            result = PARTS[name](size)
        except Exception:  # noqa: BLE001 (the rest of a long run is worth having)
            failed.append(name)
            print(f"failed\n{traceback.format_exc()}")
            continue
        seconds = round(time.monotonic() - began, 1)
        code = (commit(), behind()) if name == "gpu" else ()
        found[name] = Part(date, size.name, round(load, 2), seconds, machine, result, *code)
        print(f"{seconds} s")
    return Recorded(found), failed


def cores_in_use() -> float:
    """Return how many cores others use now."""
    return psutil.cpu_percent(interval=LOOK_S) / 100 * (psutil.cpu_count() or 1)


def write(recorded: Recorded, measured_now: Sequence[str]) -> None:
    """Write the figures, the plots of what was measured now, and the generated parts of the pages."""
    recorded.write()
    rounded = Recorded.read().parts  # so that a plot changes only with its figures
    for name in measured_now:
        for key, curve in rounded[name].found.curves.items():
            draw(curve, IMAGES / image_of(name, key))
    # In a process of its own, which reads what was written as the test of the page does.
    subprocess.run([sys.executable, "-m", "tests.docs.tables"], check=True)


def main() -> int:
    """Run, and return the exit status: 1 where a part failed, `NO_GPU` where there is nothing to measure but a GPU."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=(__doc__ or "").partition("\n")[0])
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", dest="size", action="store_const", const="quick", help="under 3 minutes")
    sizes.add_argument("--long", dest="size", action="store_const", const="long", help="1,024 ranks for 10 minutes")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), metavar="NAME", help=", ".join(PARTS))
    parser.add_argument("--write", action="store_true", help="record the figures and write docs/performance.md")
    arguments = parser.parse_args()
    names = arguments.only or list(PARTS)
    if "gpu" in names and not has_gpu():
        print("gpu: not measured, torch sees no CUDA device on this machine")
        names = [name for name in names if name != "gpu"]
        if not names:
            return NO_GPU
    began, before = time.monotonic(), Recorded.read()
    now, failed = measured(names, SIZES[arguments.size or "full"])
    merged = Recorded({name: part for name in PARTS if (part := now.parts.get(name) or before.parts.get(name))})
    print(f"\n{target_table(now, [target for target in (*TARGETS, *GPU_TARGETS) if target.is_part_of(now.figures)])}\n")
    for line in worse(before, now):
        print(f"More than 10 % worse than recorded: {line}")
    if arguments.write:
        write(merged, list(now.parts))
    print(f"{time.monotonic() - began:.0f} s{f'; failed: {failed}' if failed else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
