"""Whatever a script hands to an interface of another tracker, its training goes on, and what can be recorded is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from otel_ml.compat import mlflow, wandb
from otel_ml.compat.tensorboard import SummaryWriter
from otel_ml.testing import Capture, capture

HUGE = 10**400


class Odd:
    """An object of which nothing can be asked."""

    def _raise(self, *_: Any) -> Any:
        raise RuntimeError("odd")

    __float__ = __int__ = __bool__ = __len__ = __iter__ = __str__ = __repr__ = __eq__ = __format__ = _raise
    __hash__ = object.__hash__


ODD = [HUGE, Odd(), np.arange(3), torch.tensor([1, 2]), torch.empty(1, device="meta"), None, b"\xff", 1.5]
IDS = ["400-digits", "object", "array", "tensor", "meta", "none", "bytes", "fraction"]


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        wandb.init()
        yield run


def add_scalar(tag: Any, value: Any, step: Any, **options: Any) -> None:
    SummaryWriter("runs/odd").add_scalar(tag, value, step, **options)


CALLS: dict[str, Callable[[Any], Any]] = {
    "mlflow-value": lambda odd: mlflow.log_metric("odd", odd, step=1),
    "mlflow-values": lambda odd: mlflow.log_metrics({"odd": odd}, step=1),
    "mlflow-step": lambda odd: mlflow.log_metric("loss", 1.0, step=odd),
    "mlflow-name": lambda odd: mlflow.log_metric(odd, 1.0, step=1),
    "mlflow-tags": lambda odd: mlflow.set_experiment_tags({"odd": odd}),
    "tensorboard-value": lambda odd: add_scalar("odd", odd, 1),
    "tensorboard-step": lambda odd: add_scalar("loss", 1.0, odd),
    "tensorboard-name": lambda odd: add_scalar(odd, 1.0, 1),
    "tensorboard-option": lambda odd: add_scalar("loss", 1.0, 1, display_name=odd),
    "wandb-value": lambda odd: wandb.log({"odd": odd}),
    "wandb-step": lambda odd: wandb.log({"loss": 1.0}, step=odd),
    "wandb-commit": lambda odd: wandb.log({"loss": 1.0}, commit=odd),
    "wandb-summary": lambda odd: wandb.summary.update({"odd": odd}),
    "wandb-alert": lambda odd: wandb.alert(odd, odd, odd),
    "wandb-definition": lambda odd: wandb.define_metric("loss", summary=odd, goal=odd, step_metric=odd),
    "wandb-name": lambda odd: setattr(wandb.run, "name", odd),
    "wandb-notes": lambda odd: setattr(wandb.run, "notes", odd),
    "wandb-tags": lambda odd: setattr(wandb.run, "tags", odd),
    "wandb-files": lambda odd: wandb.save(odd),
}


@pytest.mark.parametrize("odd", ODD, ids=IDS)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_no_value_step_or_option_raises_into_training(captured: Capture, call: Callable[[Any], Any], odd: Any) -> None:
    call(odd)


def test_what_is_beside_a_number_without_a_float_is_recorded(captured: Capture) -> None:
    mlflow.log_metrics({"huge": HUGE, "loss": 1.0}, step=1)
    wandb.define_metric("huge", summary="max")
    wandb.log({"huge": HUGE, "acc": 0.5, "note": "kept"})

    assert captured.values("loss") == [1.0]
    assert captured.values("acc") == [0.5]
    assert [event.body for event in captured.events if event.name == "note"] == ["kept"]
    assert captured.values("huge") == []


OF_PANDAS = {
    "category": pd.Categorical([1.5]),
    "period": pd.array(["2026-11"], dtype="period[M]"),
    "numpy": pd.Series([1.5]).array,
    "nullable": pd.array([1.5], dtype="Float64"),
    "text": pd.array(["high"]),
    "series": pd.Series([1.5]),
}


@pytest.mark.parametrize("one", OF_PANDAS.values(), ids=OF_PANDAS)
def test_one_element_of_pandas_is_a_number_or_said_and_ends_no_process(captured: Capture, one: Any) -> None:
    wandb.log({"odd": one, "loss": 1.0})
    mlflow.log_metrics({"odd": one, "acc": 0.5}, step=7)
    add_scalar("odd", one, 8)

    expected = [1.5, 1.5, 1.5] if 1.5 in list(one) else []
    assert captured.values("odd") == expected
    assert (captured.values("loss"), captured.values("acc")) == ([1.0], [0.5])
    assert bool(captured.notices) == (not expected)
