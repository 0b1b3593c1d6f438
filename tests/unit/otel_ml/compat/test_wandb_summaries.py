"""What `define_metric(summary=…)` has in `run.summary` is what W&B 0.31 has there, whenever it is said."""

from __future__ import annotations

import math
from typing import Any

import pytest

from otel_ml.compat import wandb
from otel_ml.testing import Capture

NAN, INF = math.nan, math.inf


def shown(name: str = "loss") -> Any:
    """Return what the summary has of a metric; None where it has none."""
    assert wandb.run is not None
    found = wandb.run.summary.get(name)
    return dict(found) if hasattr(found, "keys") else found


@pytest.mark.parametrize("rows", [3, 2000])
def test_a_summary_that_is_asked_for_late_has_all_values_at_once(captured_wandb: Capture, rows: int) -> None:
    for value in range(rows, 0, -1):
        wandb.log({"loss": float(value), "lr": 1})

    wandb.define_metric("loss", summary="min,max,mean,first,last")

    assert shown() == {"min": 1.0, "max": rows, "mean": (rows + 1) / 2, "first": rows, "last": 1.0}
    wandb.log({"loss": 0.0})
    assert shown() == {"min": 0.0, "max": rows, "mean": rows / 2, "first": rows, "last": 0.0}


def test_a_later_summary_of_a_metric_has_the_values_since_its_start(captured_wandb: Capture) -> None:
    wandb.define_metric("loss", summary="max")
    for value in (5.0, 1.0, 3.0):
        wandb.log({"loss": value, "parts": {"a": value}, "note": "warm"})

    wandb.define_metric("loss", summary="min")
    wandb.define_metric("parts.a", summary="mean")

    assert (shown(), shown("parts.a"), shown("never")) == ({"max": 5.0, "min": 1.0}, {"mean": 3.0}, None)


def test_a_late_glob_has_all_values_from_the_next_row_on(captured_wandb: Capture) -> None:
    for value in (5.0, 1.0, 3.0):
        wandb.log({"loss": value})

    wandb.define_metric("lo*", summary="min,mean")

    assert shown() == 3.0
    wandb.log({"loss": 4.0})
    assert shown() == {"min": 1.0, "mean": 3.25}


def test_a_metric_that_shall_have_no_summary_has_none_anymore(captured_wandb: Capture) -> None:
    wandb.log({"loss": 5.0, "lost": 5.0})

    wandb.define_metric("loss", summary="none")
    wandb.define_metric("los*", summary="none")

    assert (shown(), shown("lost")) == (None, 5.0)
    wandb.log({"loss": 4.0, "lost": 4.0})
    assert (shown(), shown("lost")) == (None, None)
    wandb.define_metric("loss", summary="max")
    assert shown() == {"max": 5.0}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((NAN, 1.0, 2.0), {"min": NAN, "max": NAN, "mean": NAN, "first": NAN, "last": 2.0}),
        ((1.0, NAN, 2.0), {"min": NAN, "max": NAN, "mean": NAN, "first": 1.0, "last": 2.0}),
        ((1.0, 2.0, NAN), {"min": NAN, "max": NAN, "mean": NAN, "first": 1.0, "last": NAN}),
        ((NAN,), {"min": NAN, "max": NAN, "mean": NAN, "first": NAN, "last": NAN}),
        ((INF, 1.0), {"min": 1.0, "max": INF, "mean": INF, "first": INF, "last": 1.0}),
        ((-INF, 1.0, INF), {"min": -INF, "max": INF, "mean": NAN, "first": -INF, "last": INF}),
    ],
)
@pytest.mark.parametrize("is_late", [False, True])
def test_values_that_are_not_finite_are_in_the_summary_as_in_wandb(
    captured_wandb: Capture, values: tuple[float, ...], expected: dict[str, float], is_late: bool
) -> None:
    for define in (is_late, not is_late):
        if not define:
            wandb.define_metric("loss", summary="min,max,mean,first,last")
        else:
            for value in values:
                wandb.log({"loss": value})

    assert shown() == pytest.approx(expected, nan_ok=True)
    wandb.finish()
    written = {
        name: value
        for event in captured_wandb.events
        if event.kind == "ml.summary"
        for name, value in event.body.items()
    }
    assert written == pytest.approx({f"loss.{name}": value for name, value in expected.items()}, nan_ok=True)
