"""Rows, steps and step metrics of a script written for W&B are those that W&B documents."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from typing import Any

import numpy as np
import pytest

import otel_ml
from otel_ml.compat import wandb
from otel_ml.testing import Capture, capture
from tests.unit.otel_ml.compat.recorded import events, params, steps_of


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run
        wandb.finish()


@pytest.mark.feature("F23", "yes", "a W&B script runs with only its import changed")
def test_each_log_is_a_row_of_its_own(captured: Capture) -> None:
    run = wandb.init(project="digits")
    for value in (3.0, 2.0, 1.0):
        run.log({"loss": value, "acc": np.float32(0.5)})

    assert steps_of(captured, "loss") == {0: 3.0, 1: 2.0, 2: 1.0}
    assert steps_of(captured, "acc") == {0: 0.5, 1: 0.5, 2: 0.5}
    assert (run.step, wandb.run) == (3, run)


@pytest.mark.feature("N5", "better", "rows close by `commit=True`, or by themselves when all ranks are past them")
def test_a_row_stays_open_with_commit_false_and_its_last_value_counts(captured: Capture) -> None:
    wandb.init()
    wandb.log({"a": 1.0, "b": 1.0}, commit=False)
    wandb.log({"b": 5.0})
    wandb.log({"a": 2.0})

    assert steps_of(captured, "a") == {0: 1.0, 1: 2.0}
    assert steps_of(captured, "b") == {0: 5.0}


def test_a_given_step_moves_the_run_and_is_not_committed_by_itself(captured: Capture) -> None:
    wandb.init()
    wandb.log({"a": 1.0}, step=5)
    wandb.log({"b": 2.0})
    wandb.log({"a": 3.0}, step=np.int64(9), commit=True)
    wandb.log({"a": 4.0})

    assert steps_of(captured, "a") == {5: 1.0, 9: 3.0, 10: 4.0}
    assert steps_of(captured, "b") == {5: 2.0}


@pytest.mark.feature("N4", "better", "a step that goes back is kept; W&B drops such a row")
def test_a_step_that_goes_back_is_kept_where_wandb_drops_the_row(captured: Capture) -> None:
    wandb.init()
    wandb.log({"a": 1.0}, step=10)
    wandb.log({"a": 2.0}, step=4)

    assert steps_of(captured, "a") == {10: 1.0, 4: 2.0}
    assert wandb.run.step == 10


def test_values_by_epoch_beside_values_by_batch_keep_their_names_and_their_steps(captured: Capture) -> None:
    wandb.init()
    for batch in range(100):
        wandb.log({"train/loss": 1.0}, step=batch)
    wandb.log({"val/acc": 0.5}, step=0)
    wandb.log({"val/acc": 0.6}, step=1)

    assert steps_of(captured, "val/acc", "val") == {0: 0.5, 1: 0.6}
    assert len(steps_of(captured, "train/loss")) == 100
    assert captured.notices == []


def test_a_name_without_a_group_that_counts_epochs_keeps_its_name_and_its_steps(captured: Capture) -> None:
    wandb.init()
    for batch in range(1000):
        wandb.log({"loss": 1.0}, step=batch)
    for epoch in range(3):
        wandb.log({"acc": epoch / 2}, step=epoch)

    assert steps_of(captured, "acc", "step") == {0: 0.0, 1: 0.5, 2: 1.0}
    assert captured.notices == []


@pytest.mark.feature("N4", "yes", "`define_metric(glob, step_metric=…)`: the metric's own axis, under its own name")
def test_a_metric_with_a_step_metric_is_drawn_over_it_under_its_own_name(captured: Capture) -> None:
    wandb.init()
    wandb.define_metric("epoch")
    wandb.define_metric("val/*", step_metric="epoch")
    for epoch in range(3):
        for _ in range(10):
            wandb.log({"train/loss": 1.0})
        wandb.log({"epoch": epoch, "val/loss": epoch / 2})
    wandb.log({"val/late": 7.0})

    assert steps_of(captured, "val/loss", "val") == {0: 0.0, 1: 0.5, 2: 1.0}
    assert steps_of(captured, "val/late", "val") == {2: 7.0}, "the last value of the step metric counts"
    assert steps_of(captured, "epoch") == {10: 0.0, 21: 1.0, 32: 2.0}
    assert len(steps_of(captured, "train/loss")) == 30


def test_a_metric_without_a_group_keeps_its_name_and_has_its_step_metric_beside_it(captured: Capture) -> None:
    wandb.init()
    wandb.define_metric("acc", step_metric="epoch")
    for epoch in range(3):
        for _ in range(4):
            wandb.log({"loss": 1.0})
        wandb.log({"acc": epoch / 2, "epoch": epoch})

    assert steps_of(captured, "acc") == {4: 0.0, 9: 0.5, 14: 1.0}
    assert steps_of(captured, "epoch") == {4: 0.0, 9: 1.0, 14: 2.0}
    assert params(captured)["otel_ml.step_metrics"] == [["acc", "epoch"]]


def test_what_metrics_are_drawn_over_is_said_for_wandb_in_the_order_in_which_it_was_defined(captured: Capture) -> None:
    wandb.init()
    wandb.define_metric("epoch")
    wandb.define_metric("val/*", step_metric="epoch")
    wandb.define_metric("val/acc", step_metric="round", summary="max")

    assert params(captured)["otel_ml.step_metrics"] == [["val/*", "epoch"], ["val/acc", "round"]]


def test_a_step_metric_of_all_metrics_is_the_step_of_the_run(captured: Capture) -> None:
    wandb.init()
    wandb.define_metric("global_step")
    wandb.define_metric("*", step_metric="global_step", step_sync=True)
    for step in (100, 200):
        wandb.log({"global_step": step, "loss": step / 2, "note": "x"})

    assert steps_of(captured, "loss") == {100: 50.0, 200: 100.0}
    assert steps_of(captured, "global_step") == {100: 100.0, 200: 200.0}
    assert events(captured, "text")["note"].step == 200


def test_rows_that_share_the_value_of_their_step_metric_are_rows_of_the_run_with_that_beside_them(
    captured: Capture,
) -> None:
    wandb.init()
    wandb.define_metric("train/*", step_metric="epoch")
    wandb.define_metric("val/*", step_metric="epoch")
    for epoch in range(2):
        for batch in range(3):
            wandb.log({"train/loss": 10.0 * epoch + batch, "epoch": epoch})
        wandb.log({"val/acc": 0.5 + epoch})

    assert steps_of(captured, "train/loss", "train") | steps_of(captured, "train/loss") == {
        0: 0.0, 1: 1.0, 2: 2.0, 4: 10.0, 5: 11.0, 6: 12.0,
    }  # fmt: skip
    assert steps_of(captured, "val/acc", "val") == {0: 0.5, 1: 1.5}, "one row for each value: as before"


def test_a_row_in_several_calls_is_one_point_over_its_step_metric(captured: Capture) -> None:
    wandb.init()
    wandb.define_metric("train/*", step_metric="epoch")
    for epoch in range(2):
        wandb.log({"train/loss": 0.0, "epoch": epoch}, commit=False)
        wandb.log({"train/loss": 1.0 + epoch})

    assert steps_of(captured, "train/loss", "train") == {0: 1.0, 1: 2.0}
    assert steps_of(captured, "train/loss") == {}


def test_rows_that_share_the_step_metric_of_all_metrics_are_steps_of_the_run(captured: Capture) -> None:
    wandb.init()
    wandb.define_metric("*", step_metric="global_step")
    wandb.log({"global_step": 100, "loss": 1.0})
    wandb.log({"global_step": 100, "lr": 0.1})
    for loss in (2.0, 3.0):
        wandb.log({"global_step": 100, "loss": loss})
    wandb.log({"global_step": 200, "loss": 4.0})
    wandb.log({"loss": 5.0})

    assert captured.notices == []
    assert steps_of(captured, "loss") == {100: 1.0, 101: 2.0, 102: 3.0, 200: 4.0, 201: 5.0}
    assert steps_of(captured, "lr") == {100: 0.1}
    assert steps_of(captured, "global_step") == {100: 100.0, 101: 100.0, 102: 100.0, 200: 200.0, 201: 200.0}


def test_a_definition_may_be_the_step_metric_of_another(captured: Capture) -> None:
    wandb.init()
    epoch = wandb.define_metric("epoch")
    wandb.define_metric("val/acc", step_metric=epoch)
    wandb.log({"epoch": 7, "val/acc": 0.5})

    assert steps_of(captured, "val/acc", "val") == {7: 0.5}


def test_a_question_mark_in_the_name_of_a_metric_is_itself_as_in_wandb(captured: Capture) -> None:
    wandb.init()
    wandb.define_metric("done?/*", step_metric="epoch")
    wandb.log({"done?/a": 1.0, "done1/a": 2.0, "epoch": 7})

    assert {point.name: (point.axis, point.step) for point in captured.points} == {
        "done?/a": ("done?", 7), "done1/a": ("step", 0), "epoch": ("step", 0),
    }  # fmt: skip


@pytest.mark.parametrize("before", ["*", "val/*", "val/a*"])
def test_of_two_globs_the_later_one_counts_and_an_exact_name_counts_more(captured: Capture, before: str) -> None:
    wandb.init()
    wandb.define_metric("val/exact", step_metric="batch")
    wandb.define_metric(before, step_metric="epoch")
    wandb.define_metric("val/ac*", step_metric="round")
    wandb.log({"epoch": 10, "round": 20, "batch": 30, "val/acc": 0.5, "val/exact": 0.25})

    found = {(p.name, p.axis, p.step) for p in captured.points if p.name.startswith("val/")}
    assert {(name, step) for name, _, step in found} == {("val/acc", 20), ("val/exact", 30)}


def test_a_run_that_the_program_began_itself_is_joined_and_left_to_it(captured: Capture) -> None:
    otel_ml.log({"mine": 1.0}, step=0)
    with wandb.init(project="digits") as run:
        run.log({"loss": 1.0})
    otel_ml.log({"mine": 2.0}, step=1)

    assert captured.values("loss") == [1.0]
    assert captured.values("mine") == [1.0, 2.0]


def test_a_step_metric_that_is_no_whole_number_is_said_and_the_values_are_kept(captured: Capture) -> None:
    wandb.init()
    wandb.define_metric("loss", step_metric="epoch")
    wandb.log({"epoch": 0.5, "loss": 2.0})

    assert steps_of(captured, "loss") == {0: 2.0}
    assert "define_metric(step_metric='epoch') at test_wandb_steps.py:" in captured.notices[0]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("", {}),
        ("*/loss", {}),
        ("loss", {"step_metric": 1}),
        ("loss", {"summary": "median"}),
        ("loss", {"goal": "up"}),
    ],
)
def test_a_definition_that_wandb_refuses_is_said_with_its_error(
    captured: Capture, name: str, options: dict[str, Any]
) -> None:
    run = wandb.init()
    run.define_metric(name, **options)
    run.log({"loss": 1.0})

    assert any("define_metric(" in notice and "Error: " in notice for notice in captured.notices), captured.notices
    assert steps_of(captured, "loss") == {0: 1.0}


def test_a_definition_says_what_it_was_given_and_is_added_to_those_before(captured: Capture) -> None:
    run = wandb.init()
    first = run.define_metric("val/acc", step_metric="epoch", summary="max", hidden=True)
    second = run.define_metric("val/acc", summary="min")
    run.log({"epoch": 3, "val/acc": 0.5})

    assert (first.name, first.step_metric, first.summary, first.hidden) == ("val/acc", "epoch", ("max",), True)
    assert (first.step_sync, second.step_metric, second.summary, second.step_sync) == (True, None, ("min",), False)
    assert steps_of(captured, "val/acc", "val") == {3: 0.5}
    assert run.summary["val/acc"] == {"max": 0.5, "min": 0.5}, "as W&B has it"


def test_a_second_init_in_the_run_of_the_program_goes_on_after_the_rows_of_the_first(captured: Capture) -> None:
    for values in ((3.0, 2.0), (1.0,)):
        with wandb.init() as run:
            for value in values:
                run.log({"loss": value})

    assert steps_of(captured, "loss") == {0: 3.0, 1: 2.0, 2: 1.0}
    assert run.step == 3
    for value in (5.0, 6.0):
        with wandb.init() as run:
            run.log({"acc": value}, **({"step": 7} if value == 5.0 else {}))

    assert steps_of(captured, "acc") == {7: 5.0, 8: 6.0}


def test_what_wandb_says_of_a_row_itself_is_not_a_metric_and_moves_no_step(captured: Capture) -> None:
    wandb.init()
    wandb.define_metric("*", step_metric="step")
    wandb.define_metric("queue/*", step_metric="_timestamp")
    for step in range(3):
        wandb.log({"queue/length": 5.0 + step, "_timestamp": 1795945398.25 + step})
        wandb.log({"queue/length": 7.0 + step, "_timestamp": 1795945398.75 + step})
        wandb.log({"loss": 1.0 / (1 + step), "step": step})

    assert steps_of(captured, "loss") == {0: 1.0, 1: 0.5, 2: 1 / 3}
    assert steps_of(captured, "queue/length") == {0: 8.0, 1: 9.0}
    assert "_timestamp" not in {point.name for point in captured.points}


@pytest.mark.parametrize("row", [None, [1], "loss", (("loss", 1),)])
def test_what_is_no_row_takes_no_step(captured_wandb: Capture, row: Any) -> None:
    wandb.log(row)
    wandb.log({"loss": 1.0})

    assert steps_of(captured_wandb, "loss") == {0: 1.0}
    assert "TypeError: wandb.log must be passed a dictionary" in captured_wandb.notices[0]


def test_rows_of_threads_that_log_at_the_same_time_are_rows_of_their_own(captured_wandb: Capture) -> None:
    class Slow(dict[str, float]):
        """A row during whose recording another thread logs its own."""

        def items(self) -> Any:
            other = Thread(target=wandb.log, args=({"loss": 2.0},))
            other.start()
            other.join()
            return super().items()

    wandb.log(Slow(loss=1.0, note="read by its items"))
    wandb.log({"loss": 3.0})

    assert steps_of(captured_wandb, "loss") == {0: 1.0, 1: 2.0, 2: 3.0}


def test_a_disabled_run_stays_at_its_first_step() -> None:
    with wandb.init(mode="disabled") as run:
        run.log({"loss": 1.0})
        run.log({"loss": 1.0}, step=5)
        assert (run.step, run.summary["loss"], run.settings.mode) == (0, 1.0, "disabled")


def test_texts_and_times_of_numpy_are_texts(captured_wandb: Capture) -> None:
    words = {"word": np.str_("a"), "one": np.array(["b"]), "raw": np.bytes_(b"c"), "day": np.datetime64("2026-01-02")}
    wandb.log({**words, "took": np.timedelta64(3, "s"), "loss": np.float32(1.0)})

    assert {name: event.body for name, event in events(captured_wandb, "text").items()} == {
        "word": "a", "one": "b", "raw": "c", "day": "2026-01-02", "took": "3 seconds",
    }  # fmt: skip
    assert steps_of(captured_wandb, "loss") == {0: 1.0}
    assert captured_wandb.notices == []
