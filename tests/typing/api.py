"""How a user writes it, checked by mypy and pyright (`make check`) and never run: every public call, with its types."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import numpy as np
from typing_extensions import assert_type

import otel_ml
import otel_ml.types


def runs() -> None:
    run = otel_ml.init(
        "grpo-dev", name="first", role="trainer", params={"lr": 1e-3}, tags=("a",), exporters="wandb,jsonl"
    )
    assert_type(run, otel_ml.Run)
    assert_type(run.id, str)
    assert_type(run.name, str)
    assert_type(run.role, str)
    assert_type(run.rank, int)
    folder: Path | None = run.dir
    urls: Mapping[str, str] = run.urls
    run.summary({"test/accuracy": 0.93})
    with otel_ml.init() as same:
        assert_type(same, otel_ml.Run)
    otel_ml.flush(timeout=2.0)
    assert_type(run.finish(timeout=5.0), bool)
    otel_ml.shutdown(timeout=5.0)
    otel_ml.no_such_name  # type: ignore[attr-defined] # noqa: B018 (that a checker refuses it)
    environment: dict[str, str] = otel_ml.child_env()
    for steps, values in otel_ml.read(folder or run).values():
        print(list(steps), list(values))
    print(environment, urls)


def recording_into_a_run(run: otel_ml.Run) -> None:
    run.log({"loss": 0.5}, 3, axis="eval", reduce="max", commit=False)
    run.record("ce", 0.5, weight=1024)
    run.set_step(3, "rollout")
    assert_type(run.current_step(), int | None)
    with run.step(step=3), run.timed("forward"):
        run.log_text("note", "hello", 3)
    run.log_image("digit", np.zeros((8, 8)), caption="a three")
    run.event("preempted", {"node": "a"})
    run.log({1: 2.0})  # type: ignore[dict-item]
    run.log({"loss": 0.5}, colour=1)  # type: ignore[call-overload]
    run.log_text("note")  # type: ignore[call-arg]
    run.set_step("ten")  # type: ignore[arg-type]


def as_other_loggers_have_it() -> None:
    otel_ml.log("loss", 0.5)
    otel_ml.log("loss", 0.5, 3)
    otel_ml.log(loss=0.5, acc=1)
    otel_ml.log({"loss": 0.5}, commit=False)
    otel_ml.record({"loss": 0.5})
    run = otel_ml.init()
    run.log("loss", 0.5, 3)
    run.log(loss=0.5)
    run.record({"loss": 0.5})


def annotated(meter: otel_ml.types.Meter, metric: otel_ml.types.Metric, timer: otel_ml.types.Timer) -> None:
    assert_type(otel_ml.get_meter(), otel_ml.types.Meter)
    assert_type(meter.metric("x"), otel_ml.types.Metric)
    assert_type(otel_ml.timer("x"), otel_ml.types.Timer)
    assert_type(otel_ml.current_step("eval"), int | None)
    metric.record(1.0, {"task": "math"}, step=3)
    timer.stop()


def recording() -> None:
    for batch in otel_ml.steps([1, 2, 3]):
        assert_type(batch, int)
        otel_ml.log({"loss": 0.5, "n": 1, "np": np.float32(1), "each": [1.0, 2.0]})
    otel_ml.set_step(10)
    otel_ml.set_step(step=10)
    otel_ml.set_step(3, axis="rollout")
    with otel_ml.step(10, axis="eval"):
        otel_ml.log({"accuracy": 0.9}, prefix="val", weight=32, attributes={"task": "math"})
    otel_ml.log({"loss": 0.5}, step=10, axis="eval", reduce=("mean", "max"), within="sum", over="dp")
    otel_ml.record("ce", 0.5, weight=1024)
    otel_ml.define_metric("tokens*", reduce="sum")
    otel_ml.get_meter("train").metric("loss", reduce=("mean", "max"), unit="1", description="x").record(0.12)
    otel_ml.get_meter().create_counter("tokens").add(1)


@otel_ml.timed
def bare(text: str) -> int:
    return len(text)


@otel_ml.timed("named", level=2, reduce="max", span=True)
def named(text: str) -> int:
    return len(text)


@otel_ml.timed
async def asynchronous(text: str) -> int:
    return len(text)


@otel_ml.timed
def generator(text: str) -> Iterator[str]:
    yield from text


@otel_ml.timed
async def asynchronous_generator(text: str) -> AsyncIterator[str]:
    for letter in text:
        yield letter


class Trainer:
    @otel_ml.timed("forward")
    def forward(self, x: float) -> float:
        return x


def consuming(run: otel_ml.Run, headers: Mapping[str, str]) -> None:
    made = otel_ml.context(version=390)
    assert_type(made, otel_ml.types.Context)
    assert_type(made.version, int | None)
    otel_ml.consumed([made, str(made)], version=391)
    otel_ml.consumed(headers)
    run.consumed(bytes(made))


async def timing() -> None:
    assert_type(bare("x"), int)
    assert_type(named("x"), int)
    assert_type(await asynchronous("x"), int)
    assert_type(next(generator("x")), str)
    assert_type([letter async for letter in asynchronous_generator("x")], list[str])
    assert_type(Trainer().forward(1.0), float)
    with otel_ml.timed("block"):
        await asyncio.sleep(0)
    timer = otel_ml.timer("forward")
    timer.start()
    timer.stop()


def errors() -> None:
    try:
        otel_ml.instrument_ray()
    except otel_ml.MissingDependencyError as error:
        assert_type(error.slug, str)
    except otel_ml.ConfigError as error:
        raise otel_ml.OtelMLError(str(error)) from error


def work() -> None:
    with otel_ml.operation("actor/train") as measured, measured.onload():
        pass


def everything_else() -> None:
    otel_ml.log_params({"optimizer": {"lr": 1e-3}})
    otel_ml.log_text("note", "hello")
    otel_ml.log_table("wrong", [[3, 8]], columns=["truth", "guess"])
    otel_ml.log_image("digit", np.zeros((8, 8), dtype=np.uint8), caption="a three")
    otel_ml.log_figure("curve", object(), 3)
    otel_ml.log_audio("speech", np.zeros(16000, dtype=np.float32), sample_rate=16000)
    otel_ml.log_histogram("weights", np.zeros(100))
    otel_ml.log_artifact("model.pt", name="model", type="model")
    otel_ml.log_checkpoint("model.pt", step=10, aliases=["best"])
    otel_ml.event("preempted", {"node": "a"})


def mistakes() -> None:
    """Both say it of an ignored line that is not an error: each must be one."""
    otel_ml.log("loss")  # type: ignore[call-overload]
    otel_ml.log({"loss": 1.0}, 3, "eval")  # type: ignore[call-overload]
    otel_ml.timed("x", 2)  # type: ignore[call-overload]
    otel_ml.log_text("note", "words", colour="red")  # type: ignore[call-arg]
    otel_ml.set_step("ten")  # type: ignore[call-overload]
    bare(1)  # type: ignore[arg-type]
    otel_ml.init(["name"])  # type: ignore[arg-type]
