"""Recording inside `torch.compile(fullgraph=True)`: one graph, no break, and the values that eager code records."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import otel_ml
from otel_ml.testing import Capture, capture

METER = otel_ml.get_meter()


@pytest.fixture(autouse=True)
def compiled_anew() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def run() -> Iterator[Capture]:
    with capture() as found:
        yield found


def compiled(function: Callable[..., Any], backend: str = "aot_eager") -> tuple[Callable[..., Any], Any]:
    """Return a function that is compiled as a whole, and what counts its graphs."""
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend(backend)
    return torch.compile(function, fullgraph=True, backend=counter), counter


def traced(model: Callable[..., Any], x: torch.Tensor, mode: str) -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(model, tracing_mode=mode)(x)


def every_call(x: torch.Tensor, metric: Any, rate: float, tokens: int) -> torch.Tensor:
    y = torch.sin(x) * 2
    otel_ml.log({"loss": y.sum(), "rate": rate, "tokens": tokens, "constant": 2.5, "yes": True})
    otel_ml.log({"each": y}, reduce=("max", "min"), prefix="val", attributes={"part": "a", "n": 1})
    otel_ml.log({"pair": [y.mean(), 1.0]})
    otel_ml.record("weighted", y, weight=x.abs())
    otel_ml.record("counted", y.mean(), weight=tokens)
    metric.record(y.max())
    metric.record(y.min(), {"task": "b"})
    return y + 1


def points(run: Capture) -> list[tuple[Any, ...]]:
    return sorted(
        (p.name, p.axis, p.step, p.reduction, str(p.attributes), p.count, p.value, p.min, p.max) for p in run.points
    )


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled_calls_record_what_eager_ones_do_in_one_graph(backend: str) -> None:
    found = []
    for is_compiled in (False, True):
        with capture() as run:
            call, counter = compiled(every_call, backend) if is_compiled else (every_call, None)
            metric = METER.metric("metric", reduce="sum")
            for step in range(6):
                otel_ml.set_step(step)
                call(torch.arange(4.0) + step, metric, 0.5 * step, 10 * step)
            found.append(points(run))
            assert run.notices == []
            # The second is for numbers that change from call to call; no further one is made for each of them.
            assert counter is None or counter.frame_count <= 2
    eager, ours = found
    assert [point[:6] for point in ours] == [point[:6] for point in eager]
    for mine, theirs in zip(ours, eager, strict=True):
        assert mine[6:] == pytest.approx(theirs[6:], rel=1e-6)


def test_a_step_that_is_given_or_current_is_not_compiled_anew(run: Capture) -> None:
    def given(x: torch.Tensor, step: int) -> torch.Tensor:
        otel_ml.log({"given": x.sum()}, step=step, axis="eval")
        otel_ml.log({"current": x.sum()})
        return x

    call, counter = compiled(given)
    for step in range(8):
        otel_ml.set_step(100 + step)
        call(torch.full((2,), float(step)), step)

    assert run.values("given", axis="eval") == [2.0 * step for step in range(8)]
    assert [p.step for p in run.points if p.name == "current"] == list(range(100, 108))
    assert counter.frame_count == 2


@pytest.mark.parametrize("step", [None, 3, 3.0, torch.tensor(3)])
@pytest.mark.parametrize("weight", [None, 0.5, torch.tensor(0.5)])
def test_a_step_and_a_weight_of_any_kind_are_those_of_the_eager_call(step: Any, weight: Any) -> None:
    metric = METER.metric("metric")

    def call(x: torch.Tensor, step: Any, weight: Any) -> None:
        otel_ml.log({"one": x.sum(), "pair": [x.mean(), 4], "number": 7}, step=step, weight=weight)
        metric.record(x, weight=weight, step=step)

    found = []
    for function in (call, compiled(call, "eager")[0]):
        with capture() as run:
            otel_ml.set_step(9)
            for more in range(3):
                function(torch.arange(2.0) + more, step, weight)
            otel_ml.set_step(10)
            # Without the call's name: in compiled code each is a `log()`.
            found.append((points(run), {notice.partition("(): ")[2] for notice in run.notices}))
    eager, ours = found
    assert ours == eager


def model(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    hidden = torch.sin(x @ weight)
    otel_ml.log({"hidden": hidden.mean()})
    return torch.relu(hidden @ weight)


def checkpointed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        x = checkpoint(model, x, weight, use_reentrant=False)
    return x


def in_backward(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x = model(x, weight)
    return model(x, weight)


@pytest.mark.parametrize("backend", ["aot_eager_decomp_partition", "inductor"])
@pytest.mark.parametrize("function", [checkpointed, in_backward])
def test_a_value_is_recorded_once_although_the_backward_computes_it_again(
    run: Capture, function: Callable[..., torch.Tensor], backend: str
) -> None:
    call, counter = compiled(function, backend)
    for step in range(3):
        otel_ml.set_step(step)
        x = torch.ones(3, 4, requires_grad=True)
        weight = torch.full((4, 4), 0.1, requires_grad=True)
        call(x, weight).sum().backward()
        assert weight.grad is not None
    otel_ml.set_step(3)

    assert [p.count for p in run.points if p.name == "hidden"] == [2, 2, 2]
    assert counter.frame_count == 1


def test_no_recording_call_is_dropped_where_nothing_else_is_computed(run: Capture) -> None:
    def only_records(x: torch.Tensor) -> None:
        otel_ml.log({"x": x})
        otel_ml.log({"n": 3})

    call, _ = compiled(only_records)
    with torch.no_grad():
        call(torch.tensor(2.0))

    assert {p.name: p.value for p in run.points} == {"x": 2.0, "n": 3.0}


def test_a_layer_that_logs_is_compiled_as_part_of_its_model(run: Capture) -> None:
    class Layer(torch.nn.Module):
        def __init__(self, index: int) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.loss = METER.metric(f"layer/{index}/norm")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with otel_ml.timed("layer"):
                x = self.linear(x)
            self.loss.record(x.norm())
            return x

    layers = torch.nn.Sequential(*[Layer(index) for index in range(3)])
    call, counter = compiled(layers)
    for step in range(3):
        otel_ml.set_step(step)
        call(torch.ones(2, 4)).sum().backward()

    assert [len(run.values(f"layer/{index}/norm")) for index in range(3)] == [3, 3, 3]
    assert counter.frame_count == 1


def test_what_is_no_value_is_said_as_outside_of_compiled_code(run: Capture) -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        otel_ml.log({"none": None, "text": "a", "matrix": x, "good": x.sum()}, nonsense=1)
        return x

    call, _ = compiled(wrong)
    otel_ml.set_step(0)
    call(torch.ones(2, 2))

    assert run.values("good") == [4.0]
    said = " ".join(run.notices)
    assert all(f"'{name}'" in said for name in ("none", "text", "matrix"))
    assert "nonsense" in said


@otel_ml.timed
def decorated(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def with_block(x: torch.Tensor) -> torch.Tensor:
    with otel_ml.timed("block", device="cuda") as span:
        x = x * 2
        span.set_attribute("rows", 3)
    return x


BY_HAND = otel_ml.timer("by_hand")


def started_by_hand(x: torch.Tensor) -> torch.Tensor:
    BY_HAND.start()
    x = x * 2
    BY_HAND.stop()
    return x


@pytest.mark.parametrize("function", [lambda x: decorated(x) + 0, with_block, started_by_hand])
def test_a_timer_in_compiled_code_breaks_no_graph_and_says_once_that_it_measures_nothing(
    run: Capture, function: Callable[..., torch.Tensor]
) -> None:
    call, counter = compiled(function)
    for step in range(3):
        otel_ml.set_step(step)
        assert call(torch.ones(2)).tolist() == [2.0, 2.0]

    assert counter.frame_count == 1
    assert [p.name for p in run.points] == []
    [said] = run.notices
    assert "inside torch.compile" in said


def test_without_a_run_compiled_calls_do_nothing() -> None:
    call, counter = compiled(model)
    call(torch.ones(3, 4), torch.ones(4, 4))

    with capture() as run:
        otel_ml.set_step(0)
        call(torch.ones(3, 4), torch.ones(4, 4))
        assert len(run.values("hidden")) == 1
    assert counter.frame_count == 1


PROGRAM = """
{imports}
from otel_ml.testing import capture
metric = otel_ml.get_meter().metric("metric")
timer = otel_ml.timer("timer")
def f(x):
    with otel_ml.timed("block"):
        otel_ml.log({{"x": x.sum()}})
    timer.start()
    otel_ml.record("y", x.sum() + 1)
    timer.stop()
    metric.record(x.sum() + 2)
    return x * 2
with capture() as run:
    otel_ml.set_step(0)
    torch.compile(f, fullgraph=True, backend="eager")(torch.ones(3))
    print(*(run.values(name) for name in ("x", "y", "metric")))
"""


@pytest.mark.parametrize(
    "imports",
    [
        "import otel_ml\notel_ml.log\nimport torch._dynamo",
        "import torch, torch._dynamo, otel_ml",
        "import sys\nsys.modules['otel_ml._native'] = None\nimport otel_ml, torch",
    ],
    ids=["before Dynamo", "after Dynamo", "without a compiler"],
)
def test_it_works_in_whatever_order_things_are_imported(imports: str) -> None:
    program = PROGRAM.format(imports=imports)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.strip() == "[3.0] [4.0] [5.0]", done.stderr


class Exported(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.metric = METER.metric("metric")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        otel_ml.log({"x": x.sum(), "constant": 2.0})
        self.metric.record(x.max(), step=7)
        return x * 2


@pytest.mark.parametrize(
    "trace",
    [
        lambda model, x: torch.export.export(model, (x,), strict=True).module(),
        lambda model, x: torch.export.export(model, (x,), strict=False).module(),
        lambda model, x: traced(model, x, "fake"),
        lambda model, x: traced(model, x, "symbolic"),
    ],
)
def test_a_program_that_is_exported_or_traced_records_when_it_runs(run: Capture, trace: Callable[..., Any]) -> None:
    traced = trace(Exported(), torch.ones(3))
    assert "_local_scalar_dense" not in str(traced.code)
    assert run.points == []

    for step in range(2):
        otel_ml.set_step(step)
        assert traced(torch.full((3,), float(step))).tolist() == [2.0 * step] * 3
    assert run.values("x") == [0.0, 3.0]
    assert run.values("constant") == [2.0, 2.0]
    assert [p.step for p in run.points if p.name == "metric"] == [7]
    assert run.notices == []
