from __future__ import annotations

import pytest

from otel_ml_exporters.backends.mlflow.axes import Axes, axes_in


def test_metrics_of_other_axes_are_said_once_and_known_after_a_restart() -> None:
    first = Axes({}, [])
    assert [first.key("loss", "step"), first.key("eval/accuracy", "eval"), first.summary_key("best")] == [
        "loss",
        "eval/accuracy",
        "best",
    ]
    tags = first.unwritten
    first.mark_written()

    again = Axes(tags, ["loss", "eval/accuracy", "best"])

    assert axes_in(tags) == {"eval/accuracy": "eval", "best": "(summary)"}
    assert first.unwritten == again.unwritten == {}
    assert [again.key("eval/accuracy", "eval"), again.summary_key("best")] == ["eval/accuracy", "best"]


def test_a_name_on_two_axes_gets_a_key_for_the_second_also_after_a_restart() -> None:
    first = Axes({}, [])
    keys = [first.key("loss", "time"), first.key("loss", "step"), first.summary_key("loss")]

    again = Axes(first.unwritten, keys)

    assert keys == ["loss", "loss/over_step", "summary/loss"]
    assert [again.key("loss", "time"), again.key("loss", "step"), again.summary_key("loss")] == keys


def test_a_metric_that_no_tag_names_is_on_the_axis_step() -> None:
    assert Axes({}, ["loss"]).key("loss", "time") == "loss/over_time"


@pytest.mark.parametrize("letter", ["n", "損", "\U0001f600", '"'])
@pytest.mark.parametrize("axis", ["eval", "評価" * 60])
def test_ten_thousand_names_fit_into_tags_of_eight_thousand_characters(letter: str, axis: str) -> None:
    axes = Axes({}, [])
    names = [f"eval/layer_{at}/{letter * 200}" for at in range(10_000)]
    for name in names:
        axes.key(name, axis)

    assert max(map(len, axes.unwritten.values())) <= 8000
    assert axes_in(axes.unwritten) == dict.fromkeys(names, axis)


def test_a_run_goes_on_of_which_a_tag_was_cut() -> None:
    """As MLflow cuts a value at 8,000 characters: what it said of these names is lost, and not the run."""
    axes = Axes({"otel_ml.axes.0": '{"eval": ["a"]}', "otel_ml.axes.1": '{"eval": ["b", "\\u640'}, ["a", "b", "c"])

    assert [axes.key("a", "eval"), axes.key("b", "eval"), axes.key("d", "eval")] == ["a", "b/over_eval", "d"]
    assert axes_in(axes.unwritten) == {"b/over_eval": "eval", "d": "eval"}
