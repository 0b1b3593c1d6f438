"""What compiled code has looked up is there until it is done, whatever other code runs meanwhile."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import gc, sys, threading, time
import otel_ml
from otel_ml._internal.steps.axes import STEPS
from otel_ml._internal.steps.axis import Axis
from otel_ml.testing import capture
{program}
"""

# Two threads wait for the lock of the steps when all steps are forgotten, as at the end of a run.
FORGOTTEN = """
values = dict.fromkeys("abcdef", 1.0)
with capture():
    for _ in range(2):
        otel_ml.log(values, step=0)  # its names are known
    otel_ml.set_step(0)
    calls = [lambda: otel_ml.set_step(1), lambda: otel_ml.log(values, step=1)]
    threads = [threading.Thread(target=call) for call in calls]
    with STEPS.lock:
        lock = STEPS.lock
        known = sys.getrefcount(lock)
        for thread in threads:
            thread.start()
        while sys.getrefcount(lock) < known + len(threads):  # until both wait
            time.sleep(0.01)  # between two looks
        STEPS.forget()
        others = [Axis("another") for _ in range(100)]  # in the memory of what has gone
    for thread in threads:
        thread.join()
    print(not any(axis.explicit or axis.current for axis in others))
"""

# More is said of a metric while the step of its record is looked up.
SAID = """
def say(frame, kind, _):
    if frame.f_code.co_name == "current_step":
        sys.settrace(None)
        otel_ml.define_metric("x", reduce="max")

with capture() as run:
    STEPS.ask_contexts()
    metric = otel_ml.get_meter().metric("x")
    metric.record(1.0)
    otel_ml.flush()  # nothing else has the first series now
    sys.settrace(say)
    metric.record(2.0)
print(sum(point.count for point in run.points) == 2)
"""

# A finalizer that runs where the names of a row are listed takes them away.
EMPTIED = """
class Forgotten:
    def __init__(self):
        self.me = self

    def __del__(self):
        values.clear()

values = {f"x{place}": 1.0 for place in range(50)}
gc.collect()
gc.disable()
with capture():
    otel_ml.log({name.replace("x", "y"): 1.0 for name in values})
    Forgotten()
    gc.set_threshold(1)
    gc.enable()
    otel_ml.log(values)
print(True)  # and the process goes on
"""


@pytest.mark.parametrize("program", [FORGOTTEN, SAID, EMPTIED], ids=["steps", "a series", "names"])
def test_it_stays_while_other_code_runs(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(program=program)], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
