"""Processes of a machine are compared by one clock, wherever they run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from otel_ml.wire.boot_clock import seconds_since_boot

PROGRAM = """
import os, sys, time
from otel_ml.wire.boot_clock import seconds_since_boot
print(time.clock_gettime(time.CLOCK_BOOTTIME), seconds_since_boot())
sys.stdout.flush()
if os.fork() == 0:
    print(seconds_since_boot())
"""


@pytest.mark.parametrize("ahead", [1_000_000, 7])
def test_a_process_whose_namespace_has_another_time_has_the_clock_of_its_machine(ahead: int) -> None:
    container = ["unshare", "--user", "--map-root-user", "--time", "--boottime", str(ahead), "--fork"]

    before = seconds_since_boot()
    ran = subprocess.run([*container, sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    after = seconds_since_boot()

    its_own, *shared = map(float, ran.stdout.split())
    assert before + ahead <= its_own <= after + ahead
    assert before <= min(shared) <= max(shared) <= after
    assert len(shared) == 2
