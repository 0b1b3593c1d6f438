"""Time and steps count as productive once a checkpoint of all ranks holds them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import otel_ml
from otel_ml.diagnostics.goodput import Goodput, goodput_of
from otel_ml.testing import Capture, otel_ml_capture
from tests.e2e.jobs import the_run_in

__all__ = ["otel_ml_capture"]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def work(goodput: Goodput, clock: Clock, steps: range, seconds: float = 2.0) -> None:
    for step in steps:
        with goodput.work(step):
            clock.now += seconds


def newest(captured: Capture, name: str) -> float:
    """Return the last value at the last step."""
    return max(((point.step, index, point.value) for index, point in enumerate(captured.points) if point.name == name))[
        2
    ]


def test_work_counts_once_it_is_saved(otel_ml_capture: Capture) -> None:
    clock = Clock()
    goodput = Goodput(clock=clock)
    work(goodput, clock, range(3))
    assert set(otel_ml_capture.values("goodput/fraction")) == {0.0}
    assert otel_ml_capture.values("goodput/lost") == [2.0, 4.0, 6.0]

    clock.now += 2.0  # the checkpoint takes time
    goodput.saved(1)

    assert newest(otel_ml_capture, "goodput/fraction") == 4.0 / 8.0
    assert newest(otel_ml_capture, "goodput/steps") == 2
    assert newest(otel_ml_capture, "goodput/lost") == 2.0


def test_what_the_checkpoint_keeps_goes_on_after_a_restart(otel_ml_capture: Capture) -> None:
    clock = Clock()
    before = Goodput(clock=clock)
    work(before, clock, range(4))
    state = before.state(1)
    before.saved(1)  # steps 2 and 3 are lost with the job

    clock.now += 10.0
    after = Goodput(state=state, clock=clock)
    work(after, clock, range(2, 5))
    after.saved(2)

    assert newest(otel_ml_capture, "goodput/fraction") == 6.0 / 24.0  # steps 0, 1 and, done again, 2


def test_a_checkpoint_that_succeeds_in_another_thread_takes_no_step_away(
    otel_ml_capture: Capture,
) -> None:
    goodput = Goodput()
    is_over = threading.Event()

    def save() -> None:
        while not is_over.is_set():
            goodput.saved(1500)

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    saver = threading.Thread(target=save)
    saver.start()
    try:
        for step in range(3000):
            with goodput.work(step):
                pass
    finally:
        is_over.set()
        saver.join()
        sys.setswitchinterval(switch)

    assert otel_ml_capture.notices == []
    assert goodput.state(2999)["saved_steps"] == 3000


def test_work_that_raises_does_not_count(otel_ml_capture: Capture) -> None:
    clock = Clock()
    goodput = Goodput(clock=clock)

    with pytest.raises(RuntimeError), goodput.work(0):
        raise RuntimeError

    assert otel_ml_capture.points == []


SET_BACK = """
import time

real, behind = time.time, 0.0
time.time = lambda: real() - behind

from otel_ml.diagnostics.goodput import Goodput

goodput = Goodput()
with goodput.work(0):
    behind = 3600.0
state = goodput.state(0)
print(state["saved_seconds"], real() - state["began"])
"""


def test_a_clock_that_is_set_back_during_a_step_takes_no_work_away() -> None:
    ran = subprocess.run([sys.executable, "-c", SET_BACK], check=True, capture_output=True, text=True)

    seconds, age = map(float, ran.stdout.split())
    assert 0 <= seconds < 60
    assert 0 <= age < 60


def row(attempt: int, step: int, time: float, **values: float) -> dict[str, Any]:
    named = {f"goodput/{name.replace('__', '/')}": value for name, value in values.items()}
    return {
        "seq": 0,
        "role": "trainer",
        "axis": "step",
        "step": step,
        "attempt": attempt,
        "time": time,
        "values": named,
    }


def written(folder: Path, rows: list[dict[str, Any]]) -> Path:
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.feature("N23", "better", "goodput over restarts and all ranks, from the run alone; a checkpoint is k of n")
@pytest.mark.feature("M24", "better", "what restarts lost is counted from the run, not from a text file")
def test_the_run_tells_goodput_over_restarts_and_all_ranks(tmp_path: Path) -> None:
    done = {"worked": 4.0, "ranks": 2}
    rows = [
        row(0, 0, 102.0, began=100.0, **done),
        row(0, 1, 104.0, began=100.0, saved_step=1, saved_step__count=2, **done),
        row(0, 2, 106.0, began=100.0, **done),
        row(0, 3, 108.0, began=100.0, saved_step=3, saved_step__count=1, **done),  # one rank failed to save
        row(1, 2, 122.0, began=120.0, **done),
        row(1, 3, 124.0, began=120.0, saved_step=3, saved_step__count=2, **done),
        row(1, 4, 126.0, began=120.0, **done),
    ]

    report = goodput_of(written(tmp_path, rows))

    assert report.total == 26.0 * 2
    assert report.worked == 28.0
    assert report.productive == 16.0  # steps 0 and 1 of the first start, 2 and 3 of the second
    assert (report.steps, report.unsaved_steps) == (4, 1)
    assert report.incomplete == {3: (1, 2)}
    assert report.fraction == 16.0 / 52.0


def test_an_amendment_changes_what_it_has_and_leaves_the_rest_of_its_step(tmp_path: Path) -> None:
    """A restart without an attempt of its own does a step again that had closed: only what is different is written."""
    rows = [
        row(0, 0, 102.0, began=100.0, worked=4.0, ranks=2, saved_step=0, saved_step__count=1),
        row(0, 0, 104.0, began=103.0, worked=5.0) | {"amendment": True},
        row(0, 0, 105.0, saved_step__count=2) | {"amendment": True},
        row(0, 1, 110.0, began=103.0, worked=2.0, ranks=2),
    ]

    report = goodput_of(written(tmp_path, rows))

    assert (report.total, report.worked, report.productive) == (20.0, 7.0, 5.0)
    assert (report.steps, report.unsaved_steps, report.incomplete) == (1, 1, {})


def of_role(role: str, row: dict[str, Any]) -> dict[str, Any]:
    return row | {"role": role, "values": {f"{role}/{name}": value for name, value in row["values"].items()}}


def test_goodput_is_that_of_the_only_role_that_has_any_or_of_the_one_that_is_asked_for(tmp_path: Path) -> None:
    actor = of_role("actor", row(0, 0, 102.0, began=100.0, worked=1.0, ranks=1, saved_step=0, saved_step__count=1))
    critic = of_role("critic", row(0, 0, 104.0, began=100.0, worked=3.0, ranks=1))

    assert goodput_of(written(tmp_path, [actor])).productive == 1.0
    both = written(tmp_path, [actor, critic])
    assert (goodput_of(both, role="actor").total, goodput_of(both, role="critic").worked) == (2.0, 3.0)
    with pytest.raises(otel_ml.OtelMLError, match=r"of role 'trainer' in .* of actor, critic: pass role="):
        goodput_of(both)
    assert goodput_of(written(tmp_path, [actor, row(0, 0, 105.0, began=100.0, worked=4.0, ranks=1)])).worked == 4.0


def test_a_run_without_goodput_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(otel_ml.OtelMLError, match="jsonl"):
        goodput_of(tmp_path)
    with pytest.raises(otel_ml.OtelMLError, match="Record work"):
        goodput_of(written(tmp_path, [row(0, 0, 1.0)]))


@pytest.mark.parametrize(
    "state",
    [{"model": 1.0}, 5, {"began": "x", "saved_seconds": 0.0, "saved_steps": 0}, {**Goodput().state(0), "began": None}],
)
def test_a_state_of_something_else_is_refused(state: Any) -> None:
    with pytest.raises(otel_ml.ConfigError, match="state"):
        Goodput(state=state)


def test_a_job_that_really_starts_twice_is_one_report(tmp_path: Path) -> None:
    """The state travels in a checkpoint, everything else in the run."""
    with otel_ml.init("goodput", exporters="jsonl") as first:
        goodput = Goodput()
        for step in range(4):
            otel_ml.set_step(step)
            with goodput.work(step):
                pass
            if step == 1:
                checkpoint = goodput.state(step)
                goodput.saved(step)
        otel_ml.shutdown(timeout=60.0)

    with otel_ml.init("goodput", exporters="jsonl", id=first.id):
        goodput = Goodput(state=checkpoint)
        for step in range(2, 5):
            otel_ml.set_step(step)
            with goodput.work(step):
                pass
        goodput.saved(3)
        otel_ml.shutdown(timeout=60.0)

    both = the_run_in(tmp_path / "otel-ml-runs")
    report = goodput_of(both)
    assert (report.steps, report.unsaved_steps, report.incomplete) == (4, 1, {})
    assert report.worked > report.productive > 0
    assert 0 < (report.fraction or 0) < 1
    assert otel_ml.read(both)["goodput/steps"][1][-1] == 4


def test_a_run_is_found_as_read_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "digits" / "some-run"
    run.mkdir(parents=True)
    written(run, [row(0, 0, 102.0, began=100.0, worked=2.0, ranks=1)])
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path))

    assert [goodput_of(wanted).worked for wanted in ("some-run", run, "latest")] == [2.0, 2.0, 2.0]
