"""A whole run with values on a CUDA device, read back from what it left."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import otel_ml
from tests.fake_cuda import FakeCuda


@pytest.fixture
def run_on_console(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """A run whose device stands there until it ends."""
    monkeypatch.setenv("OTEL_ML_CAPTURE", "off")
    yield otel_ml.init("gpu", exporters="jsonl")
    otel_ml.shutdown()


@pytest.fixture
def run(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same, of which nothing is said."""
    monkeypatch.setenv("OTEL_ML_CAPTURE", "off")
    monkeypatch.setenv("OTEL_ML_CONSOLE", "off")
    yield otel_ml.init("gpu", exporters="jsonl")
    otel_ml.shutdown()


@pytest.mark.parametrize("mode", ["error", "warn", "default"])
def test_every_value_is_in_the_run_whatever_training_does_with_its_tensors(run: Any, cuda: FakeCuda, mode: str) -> None:
    torch.cuda.set_sync_debug_mode(mode)
    other = torch.cuda.Stream()
    for step in otel_ml.steps(range(50)):
        x = torch.full((), float(step), device="cuda")
        y = x * 2
        otel_ml.log(
            {"x": x, "y": y, "bf": (x + 0.5).bfloat16(), "i": x.long(), "half": x.half(), "b": x > 3, "host": 1.0}
        )
        x.add_(1000)
        y.zero_()
        otel_ml.log({"vec": torch.arange(4, device="cuda", dtype=torch.float32) + step}, reduce=("mean", "max"))
        with torch.cuda.stream(other):
            other.hold()
            v = torch.full((), float(step), device="cuda")
            otel_ml.log({"v": v}, weight=torch.full((), 2.0, device="cuda"))
            del v
            other.release()
    otel_ml.log_histogram("weights", torch.full((100,), 3.0, device="cuda"), bins=4)
    otel_ml.shutdown()

    found = otel_ml.read(run)
    steps = list(range(50))
    floats = [float(step) for step in steps]
    wanted = {
        "x": floats, "i": floats, "half": floats, "v": floats, "y": [2.0 * step for step in steps],
        "bf": [float(torch.tensor(step + 0.5).bfloat16()) for step in steps], "b": [float(step > 3) for step in steps],
        "vec": [step + 1.5 for step in steps], "vec/max": [step + 3.0 for step in steps], "host": [1.0] * 50,
    }  # fmt: skip
    assert {name: found[name] for name in wanted} == {name: (steps, values) for name, values in wanted.items()}
    lines = [json.loads(line) for line in (Path(run.dir) / "metrics.jsonl").read_text().splitlines()]
    assert any("weights" in str(line) for line in lines)


def test_a_flush_brings_what_the_device_has_computed_by_then(run: Any, cuda: FakeCuda) -> None:
    other = torch.cuda.Stream()
    otel_ml.set_step(0)
    with torch.cuda.stream(other):
        other.hold()
        otel_ml.log({"hangs": torch.full((), 1.0, device="cuda")})
    otel_ml.log({"loss": torch.full((), 2.0, device="cuda")})
    otel_ml.set_step(1)
    begin = otel_ml._internal.messages.recorder.recorder.recorded
    otel_ml.flush(30.0)
    assert otel_ml._internal.messages.recorder.recorder.recorded == begin + 1
    other.release()


def test_a_job_whose_device_hangs_ends_and_says_what_is_lost(run_on_console: Any, cuda: FakeCuda, capfd: Any) -> None:
    for step in otel_ml.steps(range(3)):
        otel_ml.log({"loss": torch.full((), float(step), device="cuda"), "host": 1.0})
        cuda.stream.hold()
    otel_ml.shutdown()
    found = otel_ml.read(run_on_console)
    assert found["host"] == ([0, 1, 2], [1.0] * 3)
    (lost,) = re.findall(r"device_not_done: (\d)", capfd.readouterr().err)
    assert int(lost) + len(found.get("loss", ((), ()))[0]) == 3
