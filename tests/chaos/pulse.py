"""How late a background thread of a rank was woken: what was recorded 200 ms before a kill is safe on a machine that
lets threads run when they are due; on a crowded one it is safe by so much later.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from pathlib import Path

EVERY_S = 0.1
"""As otel_ml's own thread looks around."""

WINDOW_S = 1.0


def start_pulse(file: Path) -> None:
    """Write down each waking of a thread that does nothing else."""
    pulse = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def beat() -> None:
        while True:
            os.write(pulse, f"{time.monotonic()}\n".encode())
            time.sleep(EVERY_S)  # between two beats

    threading.Thread(target=beat, name="chaos-pulse", daemon=True).start()


def lateness_s(file: Path, killed_at: float) -> float:
    """Return by how much the thread was late at most, in the last second before a kill."""
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    moments = [float(line) for line in lines if line.endswith("\n")]
    recent = [moment for moment in moments if moment >= killed_at - WINDOW_S] + [killed_at]
    before = [moment for moment in moments if moment < killed_at - WINDOW_S][-1:]
    beats = [*before, *recent]
    gaps = [later - earlier for earlier, later in itertools.pairwise(beats)]
    return max(0.0, max(gaps, default=0.0) - EVERY_S)
