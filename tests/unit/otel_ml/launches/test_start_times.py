"""When a process started, where the system has no /proc: the same for all who ask, whatever is set for them."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from otel_ml._internal.identity.started_by_ps import started_ns_by_ps

ASKS = """
import locale, os
from otel_ml._internal.identity.started_by_ps import started_ns_by_ps
locale.setlocale(locale.LC_ALL, "")
print(started_ns_by_ps(os.getpid()) // 10**9)
"""


def started_s(**surroundings: str) -> int:
    """Start a process; return when it started, as it says."""
    environ = {**os.environ, **surroundings}
    return int(subprocess.run([sys.executable, "-c", ASKS], env=environ, stdout=subprocess.PIPE, check=True).stdout)


@pytest.mark.parametrize("zone", ["UTC0", "NPT-5:45", "PST8PDT"])
def test_the_start_of_a_process_is_the_same_in_every_time_zone(zone: str) -> None:
    before = time.time()

    assert started_s(TZ=zone) == pytest.approx(before, abs=60)


def test_of_a_process_that_has_ended_there_is_no_start() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()

    assert started_ns_by_ps(ended.pid) == 0
