"""What a metric is drawn over that a script said so of."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_ml_exporters.backends.wandb.step_metrics import StepMetrics

SAID = {"otel_ml.step_metrics": [["val/exact", "batch"], ["*", "round"], ["val/*", "epoch"]]}


def test_an_exact_name_wins_and_of_globs_the_last_one(tmp_path: Path) -> None:
    metrics = StepMetrics(tmp_path / "wandb" / "step_metrics.json")
    metrics.learn(SAID)

    assert metrics.drawn("val", {"val/exact": 1.0, "val/acc": 1.0, "lr": 1.0}) == {
        "val/exact": "batch",
        "val/acc": "epoch",
        "lr": "round",
    }


def test_a_row_of_the_runs_own_steps_is_drawn_over_what_it_has(tmp_path: Path) -> None:
    metrics = StepMetrics(tmp_path / "step_metrics.json")
    metrics.learn(SAID)

    assert metrics.drawn("step", {"lr": 1.0, "round": 7.0}) == {"lr": "round"}
    assert metrics.drawn("step", {"val/acc": 1.0}) == {}, "no value of epoch, so its place is its step"


@pytest.mark.parametrize("params", [{"lr": 0.1}, {"otel_ml": {"command": "x"}}, {"otel_ml.step_metrics": "wrong"}])
def test_other_parameters_say_nothing_of_it(tmp_path: Path, params: dict[str, object]) -> None:
    metrics = StepMetrics(tmp_path / "step_metrics.json")

    metrics.learn(params)  # type: ignore[arg-type] # values of JSON

    assert metrics.drawn("val", {"val/acc": 1.0}) == {}


@pytest.mark.parametrize("torn", [False, True])
def test_the_exporter_that_goes_on_knows_it_from_the_one_before(tmp_path: Path, torn: bool) -> None:
    memory = tmp_path / "step_metrics.json"
    StepMetrics(memory).learn(SAID)
    if torn:
        memory.write_bytes(memory.read_bytes()[:20])

    assert StepMetrics(memory).drawn("val", {"val/acc": 1.0}) == ({} if torn else {"val/acc": "epoch"})


def test_a_glob_with_brackets_means_these_brackets(tmp_path: Path) -> None:
    metrics = StepMetrics(tmp_path / "step_metrics.json")
    metrics.learn({"otel_ml.step_metrics": [["val[1]/*", "epoch"]]})

    assert metrics.drawn("val[1]", {"val[1]/acc": 1.0, "val1/acc": 1.0}) == {"val[1]/acc": "epoch"}


HIDDEN = {"otel_ml.hidden_summaries": [["val/*", True], ["val/kept", False], ["loss", True]]}


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_metric_has_no_summary_where_its_own_definition_or_the_last_glob_says_so(
    tmp_path: Path, goes_on: bool
) -> None:
    memory = tmp_path / "step_metrics.json"
    metrics = StepMetrics(memory)
    metrics.learn({**SAID, **HIDDEN})
    known = StepMetrics(memory) if goes_on else metrics

    assert {name for name in ("val/acc", "val/kept", "loss", "lr") if known.hides(name)} == {"val/acc", "loss"}
    assert known.drawn("val", {"val/acc": 1.0}) == {"val/acc": "epoch"}


def test_what_an_older_exporter_has_remembered_is_known(tmp_path: Path) -> None:
    memory = tmp_path / "step_metrics.json"
    memory.write_text('[["val/*", "epoch"]]')
    metrics = StepMetrics(memory)

    assert metrics.drawn("val", {"val/acc": 1.0}) == {"val/acc": "epoch"}
    assert not metrics.hides("val/acc")
