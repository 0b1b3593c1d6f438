"""`TrainingLog`: documented names, lines and figures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from otel_ml.compat.megatron import (
    LoggerConfig,
    Timers,
    TrainingLog,
)
from otel_ml.compat.megatron.console import Console
from otel_ml.testing import Capture, capture
from otel_ml.warn_once import forget_warnings, reporter
from tests.fake_cuda import FakeCuda
from tests.waiting import eventually


@pytest.fixture
def captured() -> Iterator[Capture]:
    forget_warnings()
    with capture() as run:
        yield run


class Clock:
    """Half a second passes between two looks, one look an iteration."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.5
        return self.now - 0.5


def the_log(printed: list[str], **options: Any) -> TrainingLog:
    clock = Clock()
    given = {"train_iters": 100, "seq_length": 8, "timers": None, **options.pop("log", {})}
    return TrainingLog(LoggerConfig(**options), write=printed.append, now=clock, **given)


ALL = {
    "log_throughput": True,
    "log_throughput_to_tensorboard": True,
    "throughput_window_size": 2,
    "log_l2_norm_grad_to_tensorboard": True,
    "log_num_zeros_in_grad": True,
    "log_max_attention_logit": True,
    "log_params_norm": True,
    "log_runtime_to_tensorboard": True,
    "runtime_time_unit": "seconds",
    "log_world_size_to_tensorboard": True,
    "log_energy": True,
}

GIVEN: dict[str, Any] = {
    "learning_rate": 1e-4,
    "global_batch_size": 4,
    "loss_scale": 2.0,
    "grad_norm": 0.5,
    "params_norm": 3.0,
    "num_zeros_in_grad": 7,
    "max_attention_logit": 9.0,
    "decoupled_learning_rate": 1e-3,
    "flops": 1e12,
    "joules": 200.0,
    "l2_norm_grad": {"w": 0.25, "global": 0.5},
}


def test_every_documented_name_has_its_value(captured: Capture) -> None:
    log = the_log([], **ALL)

    for iteration in range(1, 5):
        log.log(iteration, {"lm loss": 2.0}, consumed_samples=4 * iteration, **GIVEN)

    last = {point.name: point.value for point in captured.points if (point.axis, point.step) == ("step", 4)}
    assert last == pytest.approx(
        {
            "lm_loss": 2.0,
            "iteration-time": 0.5,
            "batch-size": 4,
            "loss-scale": 2.0,
            "grad-norm": 0.5,
            "params-norm": 3.0,
            "num-zeros": 7,
            "max-attention-logit": 9.0,
            "decoupled-learning-rate": 1e-3,
            "learning-rate": 1e-4,
            "world-size": 1,
            "throughput/batches_per_sec": 2.0,
            "throughput/samples_per_sec": 8.0,
            "throughput/tokens_per_sec": 64.0,
            "throughput/device/batches_per_sec": 2.0,
            "throughput/device/samples_per_sec": 8.0,
            "throughput/device/tokens_per_sec": 64.0,
            "throughput/global_batch_size": 4,
            "throughput/tflops": 2.0,
            "throughput/tflops/device": 2.0,
            "time/total": 2.0,
            "time/remaining_estimate": 48.0,
            "time/batches": 4,
            "time/samples": 16,
            "time/tokens": 128,
            "l2_norm/grad/w": 0.25,
            "l2_norm/grad/global": 0.5,
            "iter-energy/gpu": 200.0,
            "power/gpu": 400.0,
        }
    )


def test_what_is_not_asked_for_is_not_recorded(captured: Capture) -> None:
    the_log([], log_loss_scale_to_tensorboard=False).log(1, {"lm loss": 2.0}, **GIVEN)

    names = {point.name for point in captured.points}
    assert names == {"lm_loss", "iteration-time", "batch-size", "grad-norm", "decoupled-learning-rate", "learning-rate"}


@pytest.mark.feature("M13", "better", "the axis `samples`, in every backend")
def test_values_stand_against_samples_too(captured: Capture) -> None:
    log = the_log([])

    for iteration in (1, 2):
        log.log(iteration, {"lm loss": float(iteration)}, consumed_samples=32 * iteration)

    points = [point for point in captured.points if point.axis == "samples" and point.name == "lm_loss"]
    assert [(point.step, point.value) for point in points] == [(32, 1.0), (64, 2.0)]


@pytest.mark.feature("M11", "yes", "log_interval and tensorboard_log_interval")
@pytest.mark.feature("M32", "yes", "the caller's iteration is the step; estimates begin where the job did")
def test_console_and_backends_have_their_own_cadence(captured: Capture) -> None:
    printed: list[str] = []
    options = {"iteration": 90}
    log = the_log(
        printed, log_interval=4, tensorboard_log_interval=2, log_runtime_to_tensorboard=True,
        runtime_time_unit="seconds", log=options,
    )  # fmt: skip

    for iteration in range(91, 97):
        log.log(iteration, {"lm loss": 1.0})

    steps = [point.step for point in captured.points if point.name == "lm_loss"]
    assert steps == [92, 94, 96]
    assert [line.partition("iteration ")[2].split()[0].rstrip("/") for line in printed] == ["92", "96"]
    assert captured.values("time/remaining_estimate") == [4.0, 3.0, 2.0]


@pytest.mark.feature("M12", "better", "negative and NaN means are shown; skipped iterations do not count")
@pytest.mark.parametrize(
    ("losses", "shown", "nan"),
    [([-1.0, -3.0], "-2.000000E+00", 0), ([1.0, math.nan], "NAN", 1), ([1.0, 3.0], "2.0", 0)],
)
def test_the_line_has_the_mean_of_the_interval(captured: Capture, losses: list[float], shown: str, nan: int) -> None:
    printed: list[str] = []
    log = the_log(printed, log_interval=3)

    for iteration, loss in enumerate([*losses, 1e9], start=1):
        log.log(iteration, {"lm loss": loss}, is_skipped=loss == 1e9, **GIVEN)

    [line] = printed
    assert f"| lm loss: {shown}" in line
    assert f"| number of skipped iterations:   1 | number of nan iterations:   {nan} |" in line
    for part in ("elapsed time per iteration (ms): 500.0", "learning rate: 1.000000E-04", "grad norm: 0.500"):
        assert f"| {part} |" in line
    assert captured.values("lm_loss") == pytest.approx(losses, nan_ok=True)


def test_iterations_that_are_skipped_after_an_overflow_are_nan_iterations(captured: Capture) -> None:
    printed: list[str] = []
    log = the_log(printed, log_interval=5)

    for iteration, loss in enumerate((2.0, math.nan, math.inf, 1e9, 2.0), start=1):
        log.log(iteration, {"lm loss": loss}, is_skipped=loss != 2.0)

    assert "| lm loss: 2.000000E+00 | number of skipped iterations:   3 | number of nan iterations:   2 |" in printed[0]


def test_rates_are_of_the_interval_of_their_line_and_of_their_row(captured: Capture) -> None:
    printed: list[str] = []
    times = iter([0.0, 1.0, 2.0, 3.0, 8.0])
    config = LoggerConfig(log_interval=4, tensorboard_log_interval=2, log_throughput=True, log_energy=True)
    log = TrainingLog(config, train_iters=4, write=printed.append, now=lambda: next(times))

    for iteration, joules in enumerate((10.0, 10.0, 10.0, 50.0), start=1):
        log.log(iteration, {"lm loss": 1.0}, flops=1e12, joules=joules)

    expected = "(TFLOP/s/GPU): 0.5 | energy per GPU (J/iter/GPU): 20.0 | power per GPU (W/GPU): 10.0 |"
    assert expected in printed[0]
    assert captured.values("throughput/tflops") == [1.0, pytest.approx(2 / 6)]
    assert captured.values("iter-energy/gpu") == [10.0, 30.0]
    assert captured.values("power/gpu") == [10.0, 10.0]
    assert captured.values("iteration-time") == [1.0, 3.0]


def test_the_line_has_the_largest_attention_logit(captured: Capture) -> None:
    printed: list[str] = []
    log = the_log(printed, log_interval=1, log_max_attention_logit=True)

    log.log(1, {"lm loss": 1.0}, max_attention_logit=9.0)

    assert "| max attention logit: 9.000 |" in printed[0]


def test_the_first_row_after_a_resume_is_a_mean_of_the_iterations_there_were(captured: Capture) -> None:
    timers = Timers(1, "max")
    log = the_log(
        [], tensorboard_log_interval=10, log_timers_to_tensorboard=True, log={"timers": timers, "iteration": 105}
    )

    for iteration in range(106, 121):
        timers("optimizer", log_level=1)._total += 0.5  # type: ignore[union-attr]
        log.log(iteration, {"lm loss": 1.0})

    assert captured.values("optimizer-time") == [0.5, 0.5]


def test_losses_that_are_tensors_are_averaged_as_numbers(captured: Capture) -> None:
    import torch

    printed: list[str] = []
    log = the_log(printed, log_interval=2)

    for iteration, loss in ((1, 1.0), (2, 4.0)):
        log.log(iteration, {"lm loss": torch.tensor(loss)}, grad_norm=torch.tensor(0.5))

    assert "| lm loss: 2.500000E+00 | grad norm: 0.500 |" in printed[0]
    assert captured.values("lm_loss") == [1.0, 4.0]


def test_a_line_whose_losses_are_on_a_device_is_printed_when_they_are_there_and_nobody_waits(
    captured: Capture, cuda: FakeCuda
) -> None:
    printed: list[str] = []
    log = the_log(printed, log_interval=2)
    cuda.stream.hold()
    for iteration, loss in enumerate((1.0, 2.0, float("nan"), 4.0), 1):
        log.log(iteration, {"lm loss": cuda.tensor(loss)}, grad_norm=cuda.tensor(0.5))
    assert printed == []
    cuda.stream.release()

    first, second = eventually(lambda: printed if len(printed) == 2 else [])
    assert "lm loss: 1.500000E+00" in first
    assert "grad norm: 0.500" in first
    assert "number of nan iterations:   0" in first
    assert "lm loss: NAN" in second
    assert "number of nan iterations:   1" in second


def test_a_line_whose_values_never_come_is_left_out_and_said(
    captured: Capture, cuda: FakeCuda, caplog: pytest.LogCaptureFixture
) -> None:
    printed: list[str] = []
    console = Console(printed.append, timeout=0.0)
    cuda.stream.hold()
    console.print(lambda known: f"loss {known['loss']}", {"loss": cuda.tensor(1.0)})
    console.print(lambda _: "next", {})

    eventually(lambda: printed == ["next"])
    assert "A line of the training log was not printed: the device did not give its values." in caplog.text


def test_arguments_of_any_kind_do_not_stop_training(captured: Capture, caplog: pytest.LogCaptureFixture) -> None:
    printed: list[str] = []
    log = the_log(printed, log_interval=1)

    for iteration in (1, 2):
        log.log(
            iteration,
            {"lm loss": 1.0, "aux": None},
            global_batch_size=4.0,  # type: ignore[arg-type]
            consumed_samples=4.0 * iteration,  # type: ignore[arg-type]
            grad_nrom=0.5,
        )

    assert captured.values("lm_loss") == [1.0, 1.0]
    assert "| consumed samples:            8 |" in printed[1]
    assert caplog.text.count("no argument 'grad_nrom'") == 1


def test_values_are_arrays_and_tensors_of_one_element_too(captured: Capture) -> None:
    printed: list[str] = []
    log = the_log(printed, log_interval=1)

    log.log(1, {"lm loss": torch.tensor([2.0]), "done": np.bool_(True)}, grad_norm=np.array([0.5]),
            learning_rate=torch.tensor([0.25]))  # fmt: skip
    log.validation(1, {"lm loss": torch.tensor([1.0])})

    assert (
        "| learning rate: 2.500000E-01 | lm loss: 2.000000E+00 | done: 1.000000E+00 | grad norm: 0.500 |" in printed[0]
    )
    assert "number of nan iterations:   0 |" in printed[0]
    assert "lm loss value: 1.000000E+00 | lm loss PPL: 2.718282E+00 |" in printed[1]


def test_what_is_no_number_costs_neither_the_line_nor_what_stands_beside_it(captured: Capture) -> None:
    printed: list[str] = []
    log = the_log(printed, log_interval=1)

    log.log(1, {"names": np.array(["a", "b"]), "complex": 1j, "lm loss": 1.0})
    log.log(2, None)  # type: ignore[arg-type]
    log.log(3, {"lm loss": 3.0})

    assert captured.values("lm_loss") == [1.0, 3.0]
    assert [line.count("| lm loss: 1.0") + line.count("| lm loss: 3.0") for line in printed] == [1, 1]
    assert (reporter.dropped["bad_value"], reporter.dropped["bad_event"]) == (2, 1)


@pytest.mark.feature("M35", "yes", "skip_train_metrics_log")
def test_metrics_of_training_can_be_left_out_while_validation_stays(captured: Capture) -> None:
    printed: list[str] = []
    log = the_log(printed, skip_train_metrics_log=True, log_validation_ppl_to_tensorboard=True, log_interval=1)

    log.log(1, {"lm loss": 1.0})
    log.validation(1, {"lm loss": 2.0})

    assert {point.name: point.value for point in captured.points} == {
        "lm_loss_validation": 2.0,
        "lm_loss_validation_ppl": pytest.approx(math.exp(2.0)),
    }
    assert "| lm loss: 1.000000E+00 |" in printed[0]
    assert printed[1] == " validation loss at iteration 1 | lm loss value: 2.000000E+00 | lm loss PPL: 7.389056E+00 | "


def test_the_perplexity_of_a_validation_loss_that_is_nan_is_nan(captured: Capture) -> None:
    printed: list[str] = []
    log = the_log(printed, log_validation_ppl_to_tensorboard=True)

    log.validation(1, {"lm loss": math.nan})

    (ppl,) = captured.values("lm_loss_validation_ppl")
    assert math.isnan(ppl)
    assert "| lm loss PPL: NAN |" in printed[0]


def test_timers_are_written_and_reported_with_it_each_over_its_own_interval(captured: Capture) -> None:
    printed: list[str] = []
    timers = Timers(1, "max")
    log = the_log(printed, log_interval=4, log_timers_to_tensorboard=True, log={"timers": timers})

    for iteration in range(1, 5):
        timers("optimizer", log_level=1)._total += 0.5  # type: ignore[union-attr]
        log.log(iteration, {"lm loss": 1.0})

    assert captured.values("optimizer-time") == [0.5] * 4
    assert printed[-1].endswith(": 500.00")


def test_the_line_has_a_number_of_zeros_as_it_is_and_the_loss_scale_that_no_backend_is_to_have(
    captured: Capture,
) -> None:
    printed: list[str] = []
    log = the_log(printed, log_interval=1, log_num_zeros_in_grad=True, log_loss_scale_to_tensorboard=False)

    log.log(1, {"lm loss": 2.5}, loss_scale=1024.0, num_zeros_in_grad=7, grad_norm=0.5)
    log.log(2, {"lm loss": 2.5}, num_zeros_in_grad=torch.tensor(8))

    assert "| loss scale: 1024.0 | grad norm: 0.500 | num zeros: 7 |" in printed[0]
    assert captured.values("loss-scale") == []
    assert "loss scale" not in printed[1]
    assert "| num zeros: 8 |" in printed[1]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (None, {"memory/mem-allocated-gigabytes": 1.5, "memory/mem-max-reserved-gigabytes": 2.0,
                "memory/mem-alloc-retires": 3.0, "memory/mem-allocated-count": 40.0}),
        ({"reserved_bytes.all.peak": "peak", "allocated_bytes.all.current": "my-bytes-now", "num_ooms": "ooms"},
         {"memory/peak": 2.0, "memory/my-gigabytes-now": 1.5, "memory/ooms": 0.0}),
    ],
    ids=["by default", "chosen"],
)  # fmt: skip
def test_device_memory_has_the_names_of_bridge_also_of_keys_that_a_configuration_chooses(
    captured: Capture,
    monkeypatch: pytest.MonkeyPatch,
    chosen: dict[str, str] | None,
    expected: dict[str, float],
) -> None:
    stats = {"allocated_bytes.all.current": 1_500_000_000, "reserved_bytes.all.peak": 2_000_000_000}
    counts = {"num_alloc_retries": 3, "allocation.all.current": 40, "num_ooms": 0}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: {**stats, **counts})
    log = the_log([], log_memory_to_tensorboard=True, memory_keys=chosen)

    log.log(1, {"lm loss": 2.5})

    assert {point.name: point.value for point in captured.points if point.name.startswith("memory/")} == expected
