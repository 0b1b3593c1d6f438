"""What can happen to the W&B client within one process: `python -m tests.integration.wandb_scenarios NAME RUN_DIR`.

The client keeps the address of its server for the life of a process, so each scenario has a process of its own.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.backends.wandb import WandbExporter
from otel_ml_exporters.errors import PermanentExportError, RestartExporterError, RetryableExportError
from otel_ml_exporters.records import RunStatus, StepRecord
from tests.contract.stream import AT, run_info, training
from tests.integration.exporter_life import RUN_ID

WAIT = 30.0


def opened(run_dir: Path) -> WandbExporter:
    """Start as the pipeline does: again after a retryable failure."""
    deadline = time.monotonic() + WAIT
    while True:
        exporter = WandbExporter()
        try:
            exporter.start(run_info(run_dir, RUN_ID))
        except RetryableExportError:
            if time.monotonic() > deadline:
                raise
        else:
            return exporter


def the_service_dies(run_dir: Path) -> None:
    """Kill `wandb-core` after 30 records, go on with a new exporter, finish at 60."""
    first = opened(run_dir)
    first.export([training(seq) for seq in range(1, 31)])
    cores = [child for child in psutil.Process().children(recursive=True) if child.name() == "wandb-core"]
    for core in cores:
        core.kill()
    psutil.wait_procs(cores)
    try:
        # The socket may take one row or two before it says that nobody reads.
        for seq in range(31, 61):
            first.export([training(seq)])
    except RestartExporterError as error:
        print(error)
    second = opened(run_dir)
    second.export([training(seq) for seq in range((second.position() or 0) + 1, 61)])
    second.shutdown(WAIT, RunStatus(61, AT, "finished"))


def the_upload_is_slow(run_dir: Path) -> None:
    """Shut down within a time that is too short for a server that does not answer."""
    exporter = opened(run_dir)
    exporter.export([training(seq) for seq in range(1, 31)])
    sys.stdin.readline()
    exporter.export([training(seq) for seq in range(31, 61)])
    try:
        exporter.shutdown(0.3, None)
    except RetryableExportError as error:
        print(error)


def the_server_is_away(run_dir: Path) -> None:
    """Start online and offline while nothing listens."""
    for mode in ("auto", "offline"):
        try:
            WandbExporter(mode=mode).start(run_info(run_dir, RUN_ID))
        except (RetryableExportError, ConfigError) as error:
            print(f"{type(error).__name__}: {error}")


def too_many_names(run_dir: Path) -> None:
    """Record two metrics a step, each step another one, where three have room; say why, once."""
    exporter = WandbExporter(names=3)
    exporter.start(run_info(run_dir, RUN_ID))
    steps = [
        {"m0": 1.0, "m1": 1.0},
        {"m1": 2.0, "m2": 2.0},
        {"m2": 3.0, "m3": 3.0},
        {"m3": 4.0, "m4": 4.0},
        {"m0": 5.0},
    ]
    said = set()
    for seq, values in enumerate(steps, start=1):
        try:
            exporter.export([StepRecord(seq, "trainer", "step", seq, 0, AT, values)])
        except PermanentExportError as error:
            said.add(str(error))
    print(*said, sep="\n")
    exporter.shutdown(WAIT, RunStatus(6, AT, "finished"))


def a_start_without_a_key(run_dir: Path) -> None:
    """Start where nobody logged in, twice; the second process is told that the first began offline."""
    exporter = opened(run_dir)
    print(exporter.notice)
    exporter.export([training(seq) for seq in range((exporter.position() or 0) + 1, 11)])
    exporter.shutdown(WAIT, RunStatus(11, AT, "finished"))


def a_start_in_the_second_of_another(run_dir: Path) -> None:
    """Start offline where another process of the run has begun in this second, and in the next one."""
    for second in range(2):
        began = time.strftime("%Y%m%d_%H%M%S", time.localtime(time.time() + second))
        log = run_dir.parents[1] / "wandb" / f"offline-run-{began}-{RUN_ID}" / f"run-{RUN_ID}.wandb"
        log.parent.mkdir(parents=True)
        log.write_text("its rows")
    a_start_without_a_key(run_dir)


def the_rows_are_lost_with_the_service(run_dir: Path) -> None:
    """Go on offline, say from where, and let `wandb-core` die before it has written a row, as in a power cut."""
    exporter = opened(run_dir)
    print(exporter.position())
    log = Path(exporter.url or "") / f"run-{RUN_ID}.wandb"
    start = exporter.position() or 0
    exporter.export([training(seq) for seq in range(start + 1, start + 31)])
    cores = [child for child in psutil.Process().children(recursive=True) if child.name() == "wandb-core"]
    for core in cores:
        core.kill()
    psutil.wait_procs(cores)
    os.truncate(log, 7)  # its header: it may have been written by now


def the_position_is_asked_for(run_dir: Path) -> None:
    """Export 30 rows more, after saying from where."""
    exporter = opened(run_dir)
    print(exporter.position())
    start = exporter.position() or 0
    exporter.export([training(seq) for seq in range(start + 1, start + 31)])
    exporter.shutdown(WAIT, RunStatus(start + 31, AT, "finished"))


def the_log_is_removed(run_dir: Path) -> None:
    """Finish an offline run whose log somebody removed: W&B writes on, and its end is nowhere to be read."""
    exporter = opened(run_dir)
    exporter.export([training(seq) for seq in range(1, 31)])
    exporter.force_flush(WAIT)
    (log,) = run_dir.parents[1].glob("**/*.wandb")
    log.unlink()
    try:
        exporter.shutdown(3.0, RunStatus(31, AT, "finished"))
    except RetryableExportError as error:
        print(error)


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)
