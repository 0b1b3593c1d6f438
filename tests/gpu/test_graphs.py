"""What compiled and captured code records is in the run, each call's and each replay's value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import otel_ml
from tests.gpu.conftest import StartJob
from tests.gpu.devices import Device

STEPS = 8
WIDTH = 64


@pytest.fixture(params=[False, True], ids=["", "deterministic"])
def _algorithms(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whether torch is told to use deterministic algorithms: then it fills new memory, and looks at indices."""
    torch.use_deterministic_algorithms(request.param)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.gpu
@pytest.mark.usefixtures("_algorithms")
def test_each_replay_of_a_captured_graph_has_its_value(cuda: Device, job: StartJob) -> None:
    value, shown = torch.zeros((), device="cuda"), torch.zeros((), device="cuda")

    def work() -> None:
        shown.copy_(value * 2)
        otel_ml.log({"inside": shown})

    with job() as run:
        otel_ml.set_step(0)
        replay = cuda.captured(work)
        for step in otel_ml.steps(range(1, STEPS)):
            value.fill_(step)
            replay()
            otel_ml.log({"after": shown})
        cuda.synchronize()

    assert run["after"] == [2 * step for step in range(1, STEPS)]
    assert run.steps("inside") == list(range(1, STEPS))
    assert run["inside"] == [2 * step for step in range(1, STEPS)]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
def test_outputs_that_reduce_overhead_writes_again_and_again_are_those_of_their_step(
    cuda: Device, job: StartJob
) -> None:
    torch.manual_seed(0)
    model = torch.compile(torch.nn.Linear(WIDTH, WIDTH).cuda(), mode="reduce-overhead")
    inputs, want = torch.randn(8, WIDTH, device="cuda"), []
    with job() as run, torch.no_grad():
        for step in otel_ml.steps(range(12)):
            torch.compiler.cudagraph_mark_step_begin()
            out = model(inputs * (step + 1))
            loss = out.float().square().mean()
            otel_ml.log({"loss": loss, "first": out[0, 0]})
            want.append((loss.detach().clone(), out[0, 0].detach().clone()))
        cuda.synchronize()

    assert run["loss"] == pytest.approx([loss.item() for loss, _ in want], rel=1e-6)
    assert run["first"] == pytest.approx([first.item() for _, first in want], rel=1e-6)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_log_and_timed_within_fullgraph_record_what_they_record_without(cuda: Device, job: StartJob, mode: str) -> None:
    largest = otel_ml.get_meter().metric("largest")

    def forward(inputs: Any) -> Any:
        with otel_ml.timed("inside"):
            doubled = inputs * 2
        otel_ml.log({"sum": doubled.sum(), "one": 1.0})
        largest.record(doubled.max())
        return doubled + 1

    compiled = torch.compile(forward, fullgraph=True, mode=mode)
    with job() as run:
        for step in otel_ml.steps(range(STEPS)):
            inputs = torch.arange(4, device="cuda", dtype=torch.float32) * step
            torch.compiler.cudagraph_mark_step_begin()
            assert torch.equal(compiled(inputs), inputs * 2 + 1)
        cuda.synchronize()

    every = list(range(STEPS))
    assert run.steps("sum") == run.steps("one") == run.steps("largest") == every
    assert run["sum"] == [12.0 * step for step in every]
    assert run["largest"] == [6.0 * step for step in every]


@pytest.mark.filterwarnings("ignore")
def test_training_around_a_compiled_model_is_recorded_as_around_any_other(device: Device, job: StartJob) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(WIDTH, WIDTH).to(device.kind)
    compiled = torch.compile(model, backend="inductor" if device.kind == "cuda" else "eager")
    want = []
    with job() as run:
        for _ in otel_ml.steps(range(STEPS)):
            with otel_ml.timed("forward", device=device.kind):
                loss = compiled(torch.randn(8, WIDTH, device=device.kind)).square().mean()
            loss.backward()
            otel_ml.log({"loss": loss})
            want.append(loss.detach().clone())
        device.synchronize()

    assert run["loss"] == pytest.approx([loss.item() for loss in want], rel=1e-6)
