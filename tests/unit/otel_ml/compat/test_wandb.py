"""A script written for W&B records the names and values that W&B documents, with only its import changed."""

from __future__ import annotations

import argparse
import copy
import json
import os
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import otel_ml
from otel_ml.compat import wandb
from otel_ml.testing import Capture, capture
from tests.e2e.jobs import the_run_in
from tests.unit.otel_ml.compat.recorded import events, params, steps_of
from tests.unit.otel_ml.lazy import Lazy
from tests.waiting import eventually


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run
        wandb.finish()


def summary(captured: Capture) -> dict[str, float]:
    merged: dict[str, float] = {}
    for event in captured.events:
        if event.kind == "ml.summary":
            merged.update(event.body)
    return merged


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
    assert "define_metric(step_metric='epoch') at test_wandb.py:" in captured.notices[0]


def test_the_summary_has_last_values_and_what_define_metric_asks_for(captured: Capture) -> None:
    run = wandb.init()
    run.define_metric("loss", summary="min,max")
    run.define_metric("acc", summary="mean")
    for loss, acc in ((3.0, 0.25), (1.0, 0.75), (2.0, 0.5)):
        run.log({"loss": loss, "acc": acc, "lr": loss})
    assert (run.summary["loss"], run.summary["loss"]["min"]) == ({"min": 1.0, "max": 3.0}, 1.0), "as W&B has it"
    assert (run.summary.get("acc"), run.summary["lr"], "other" in run.summary) == ({"mean": 0.5}, 2.0, False)

    run.summary["best"] = 0.75
    run.summary.update({"note": "fine"})
    run._last_words()

    assert summary(captured) == {"best": 0.75, "loss.min": 1.0, "loss.max": 3.0, "acc.mean": 0.5}
    assert params(captured)["summary"] == {"note": "fine"}


@pytest.mark.feature("N6", "yes", "dictionaries, argparse namespaces, nested values")
def test_the_config_takes_what_wandb_takes_and_is_recorded(captured: Capture) -> None:
    wandb.config.before = "init"
    run = wandb.init(config={"lr": 0.1, "model": {"layers": 2}, "secret": 1}, config_exclude_keys=["secret"])
    wandb.config.update(argparse.Namespace(batch=8))
    wandb.config.epochs = 3
    run.config["seed"] = 0
    run.config.setdefaults({"lr": 0.5, "warmup": 10})

    assert params(captured) == {
        "before": "init", "lr": 0.1, "model": {"layers": 2}, "batch": 8, "epochs": 3, "seed": 0, "warmup": 10,
    }  # fmt: skip
    assert (wandb.config.lr, run.config["batch"], run.config.get("no", 1), "seed" in wandb.config) == (0.1, 8, 1, True)
    assert {**run.config} == copy.copy(run.config).as_dict() == run.config.as_dict()
    with pytest.raises(AttributeError, match="it has before, lr"):
        _ = wandb.config.momentum


def test_a_config_may_be_a_file(captured: Capture, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("lr: {value: 0.1, desc: null}\nlayers: 2\n")

    wandb.init(config=str(file))

    assert params(captured) == {"lr": 0.1, "layers": 2}


def test_nested_values_are_flattened_with_a_dot(captured: Capture) -> None:
    wandb.init()
    wandb.log({"train": {"loss": 1.0, "by": {"task": 2.0}}})

    assert steps_of(captured, "train.loss") == {0: 1.0}
    assert steps_of(captured, "train.by.task") == {0: 2.0}


@pytest.mark.feature("N9", "yes", "numpy scalars, 0-d and one-element arrays and tensors; the rest is said by type")
def test_values_of_all_kinds_become_what_they_are(captured: Capture) -> None:
    import torch

    wandb.init()
    wandb.log(
        {
            "tensor": torch.tensor(2.0, requires_grad=True),
            "array": np.array([4.0]),
            "flag": True,
            "nothing": None,
            "text": "hello",
            "distribution": np.arange(10.0),
            "list": [1, 2, 3],
            "object": object(),
        }
    )

    assert steps_of(captured, "tensor") == {0: 2.0}
    assert steps_of(captured, "array") == {0: 4.0}
    assert steps_of(captured, "flag") == {0: 1.0}
    assert events(captured, "text")["text"].body == "hello"
    assert sum(events(captured, "histogram")["distribution"].body["counts"]) == 10
    assert sum(events(captured, "histogram")["list"].body["counts"]) == 3
    [said] = captured.notices
    assert "A value of type object in 'object' at test_wandb.py:" in said
    last = {name: wandb.run.summary[name] for name in ("tensor", "array", "flag")}
    assert last == {"tensor": 2.0, "array": 4.0, "flag": True}
    assert type(last["tensor"]) is float, "a tensor would keep its graph alive"


def test_a_tensor_that_would_have_to_be_waited_for_is_not_in_the_summary(captured: Capture) -> None:
    import torch

    run = wandb.init()
    run.log({"loss": torch.tensor(2.0, device="meta"), "accuracy": torch.tensor(0.5), "part": Fraction(1, 4)})

    assert list(run.summary.keys()) == ["accuracy", "part"]
    assert (run.summary["accuracy"], run.summary["part"]) == (0.5, 0.25)


def test_an_alert_is_an_event_with_its_level(captured: Capture) -> None:
    wandb.init()
    wandb.alert("loss is NaN", "at step 7", level=wandb.AlertLevel.WARN)
    wandb.alert("resumed", level="ERROR")
    wandb.alert("done")

    alerts = [event.attributes for event in captured.events if event.kind == "alert"]
    assert [(alert["title"], alert["level"]) for alert in alerts] == [
        ("loss is NaN", "WARN"), ("resumed", "ERROR"), ("done", "INFO"),
    ]  # fmt: skip


@pytest.mark.feature("F14", "yes", "said once with place and name, never raised")
def test_what_is_not_kept_is_said_once_with_its_place_and_never_raised(captured: Capture) -> None:
    wandb.login()
    wandb.init(dir="elsewhere", sync_tensorboard=True, anonymous="allow", settings=wandb.Settings(console="off"))
    for _ in range(3):
        wandb.watch(object())
        wandb.log({"loss": 1.0}, step="three")  # type: ignore[arg-type]
        wandb.log(5)  # type: ignore[arg-type]
        wandb.config.update(7)
    wandb.alert("title", "text")

    said = " ".join(captured.notices)
    for what in (
        "init(dir='elsewhere')",
        "init(sync_tensorboard=…)",
        "wandb.watch()",
        "step='three'",
        "config=7",
    ):
        assert said.count(what) == 1, what
    assert said.count("wandb.log(5) at test_wandb.py:") == 1
    assert "TypeError: wandb.log must be passed a dictionary." in said
    assert [event.kind for event in captured.events if event.kind == "alert"] == ["alert"]


def test_what_wandb_has_not_either_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"otel_ml\.compat\.wandb has no 'no_such_name'"):
        _ = wandb.no_such_name


def test_other_names_are_wandbs_own_and_said_to_know_nothing_of_this_run(captured: Capture) -> None:
    import wandb as original

    wandb.init()

    assert wandb.visualize is original.visualize
    assert wandb.env.API_KEY == "WANDB_API_KEY"  # a module
    assert any("wandb.visualize at test_wandb.py" in notice for notice in captured.notices)


def test_what_speaks_with_wandbs_server_is_wandbs_own() -> None:
    import wandb as original

    assert wandb.Api is original.Api
    assert wandb.sweep is original.sweep


def test_a_disabled_run_accepts_everything_and_records_nothing(captured: Capture) -> None:
    with wandb.init(mode="disabled", config={"lr": 0.1}) as run:
        run.log({"loss": 1.0})
        run.summary["best"] = 1.0
        run.log_artifact(wandb.Artifact("a"))
        assert (run.disabled, run.summary["loss"], run.config.lr) == (True, 1.0, 0.1)

    assert captured.points == []
    assert [event for event in captured.events if event.kind != "ml.notice"] == []
    assert wandb.run is None


def test_the_environment_of_wandb_is_respected(captured: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "from-env")
    monkeypatch.setenv("WANDB_TAGS", "a,b")
    monkeypatch.setenv("WANDB_RUN_GROUP", "night")

    run = wandb.init()

    assert (run.project, run.tags, run.group, run.offline) == ("from-env", ("a", "b"), "night", True)


def test_a_second_init_returns_the_run_and_reinit_begins_another(captured: Capture) -> None:
    first = wandb.init(config={"a": 1})

    assert wandb.init(config={"b": 2}) is first
    assert dict(first.config) == {"a": 1, "b": 2}


def test_one_run_is_written_with_the_names_that_wandb_documents(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "jsonl")
    with wandb.init(project="digits", name="first", config={"lr": 0.1}) as run:
        run.define_metric("val/*", step_metric="epoch")
        for epoch in range(2):
            for _ in range(3):
                run.log({"loss": 1.0 + epoch})
            run.log({"epoch": epoch, "val/acc": epoch / 2})
        run_id = run.id

    folder = the_run_in(tmp_path / "otel-ml-runs")
    shown = otel_ml.read(folder)
    assert shown["loss"] == ([0, 1, 2, 4, 5, 6], [1.0, 1.0, 1.0, 2.0, 2.0, 2.0])
    assert shown["val/acc"] == ([0, 1], [0.0, 0.5])
    assert shown["epoch"] == ([3, 7], [0.0, 1.0])

    with wandb.init(project="digits", id=run_id, resume="must") as run:
        assert (run.id, run.step, run.resumed) == (run_id, 8, True)
        run.log({"loss": 9.0})
    assert otel_ml.read(the_run_in(tmp_path / "otel-ml-runs"))["loss"][0] == [0, 1, 2, 4, 5, 6, 8]
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert {row.get("attempt", 0) for row in rows if "values" in row} == {0}, "it goes on, it does not restart"


def test_a_config_of_which_a_value_is_missing_is_taken_without_it(captured: Capture) -> None:
    run = wandb.init(config=Lazy())
    run.config.update({"model": Lazy()})

    assert dict(run.config) == {"dim": 64, "model": run.config["model"]}
    assert [event.body for event in captured.events if event.kind == "ml.params"] == [
        {"dim": 64},
        {"model": {"dim": 64}},
    ]
    first, second = captured.notices
    assert "config=Lazy at test_wandb.py" in first
    assert "cannot read model.missing" in second


def test_every_public_name_of_wandb_is_there() -> None:
    import wandb as original
    from wandb.sdk.wandb_run import Run

    run = wandb.init(mode="disabled")
    wandb_names = [name for name in original.__all__ if not name.startswith("_")]
    run_names = [name for name in dir(Run) if not name.startswith("_")]
    run.finish()

    assert [name for name in wandb_names if not hasattr(wandb, name) and name != "run"] == []
    assert [name for name in run_names if not hasattr(run, name)] == []


def test_a_run_says_of_itself_what_wandbs_says(captured: Capture) -> None:
    run = wandb.init(project="digits", config={"lr": 0.1}, job_type="train", tags=["a"])

    assert (run.settings.project, run.settings.run_job_type, run.settings.run_id) == ("digits", "train", run.id)
    assert (run.config_static.lr, run.starting_step, run.sweep_url) == (0.1, 0, None)
    assert 0 <= time.time() - run.start_time < 60
    assert wandb.api.default_entity is None


def test_login_with_a_key_is_known_to_the_exporter_and_to_api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert (wandb.api.api_key, wandb.login()) == (None, False)

    assert wandb.login(key="secret") is True
    assert wandb.api.api_key == os.environ["WANDB_API_KEY"] == "secret"


def test_a_key_of_wandb_login_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password stored\n")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    assert wandb.api.api_key == "stored"


def test_a_run_that_was_not_there_is_not_resumed_and_one_that_was_is(tmp_path: Path) -> None:
    with pytest.raises(wandb.UsageError, match="must"):
        wandb.init(project="digits", id="once", resume="must")
    first = wandb.init(project="digits", id="once", resume="allow")
    first.log({"loss": 1.0})
    first.finish()
    the_run_in(tmp_path / "otel-ml-runs")
    with pytest.raises(wandb.UsageError, match="never"):
        wandb.init(project="digits", id="once", resume="never")
    second = wandb.init(project="digits", id="once", resume="must")
    second.finish()

    assert (first.resumed, second.resumed, second.starting_step) == (False, True, 1)


@pytest.mark.parametrize(("goal", "best"), [(None, 1.0), ("minimize", 1.0), ("maximize", 3.0)])
def test_the_best_value_of_a_metric_is_in_the_summary(captured: Capture, goal: str | None, best: float) -> None:
    run = wandb.init()
    run.define_metric("val", summary="best", goal=goal)
    for value in (3.0, 1.0, 2.0):
        run.log({"val": value})
    run.finish()

    assert summary(captured)["val.best"] == best


def test_what_is_set_inside_of_a_nested_summary_is_written(captured: Capture) -> None:
    run = wandb.init()
    run.summary["t"] = {"nest": {}}
    run.summary["t"]["nest"]["x"] = 7
    run.summary["gone"] = 1
    del run.summary["gone"]

    assert summary(captured)["t.nest.x"] == 7
    assert run.summary["t"] == {"nest": {"x": 7}}
    assert "gone" not in run.summary


def test_keys_of_the_config_are_chosen_and_files_have_its_defaults(
    captured: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config-defaults.yaml").write_text("lr: {value: 1}\nepochs: {value: 5}\n")
    Path("sweep.yaml").write_text("wandb_version: 1\nmomentum: {value: 0.5}\n")
    monkeypatch.setenv("WANDB_SWEEP_PARAM_PATH", "sweep.yaml")
    wandb.init(config={"lr": 2, "unwanted": 3, "momentum": 1}, config_include_keys=["lr", "momentum"])

    assert params(captured) == {"lr": 2, "epochs": 5, "momentum": 0.5}


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
    assert run.summary["val/acc"] == {"min": 0.5}


def test_what_a_sweep_chose_stays_whatever_the_program_sets(
    captured: Capture, tmp_path: Path, monkeypatch: Any
) -> None:
    Path("sweep.yaml").write_text("lr: {value: 0.5}\n")
    monkeypatch.setenv("WANDB_SWEEP_PARAM_PATH", "sweep.yaml")
    run = wandb.init(config={"lr": 0.1, "betas": (0.9, 0.99)})
    run.config.lr = 7
    run.config.update({"lr": 8, "epochs": 2})
    run.config.update_locked({"model": {"depth": 1, "width": 2}}, "sweep")
    run.config.merge_locked({"model": {"depth": 5}}, "sweep")

    assert dict(run.config) == {"lr": 0.5, "betas": [0.9, 0.99], "epochs": 2, "model": {"depth": 5, "width": 2}}
    assert params(captured) == dict(run.config)
    assert any("locked by the sweep" in notice for notice in captured.notices)


def test_a_configuration_that_holds_itself_is_taken(captured: Capture) -> None:
    own: dict[str, Any] = {"lr": 0.1}
    own["self"] = own

    assert wandb.init(config=own).config.lr == 0.1


def test_what_is_set_in_the_summary_before_there_is_a_run_begins_one(captured: Capture) -> None:
    wandb.summary["best"] = 1.0
    wandb.summary.last = 2.0

    assert (wandb.run.summary["best"], wandb.summary["last"]) == (1.0, 2.0)
    assert summary(captured) == {"best": 1.0, "last": 2.0}


def test_a_resume_that_nobody_said_which_of_is_said(captured: Capture) -> None:
    wandb.init(resume="auto")

    assert any("wandb.init(resume='auto')" in notice and "Pass the id=" in notice for notice in captured.notices)


def test_a_run_is_copied_with_the_objects_of_the_program_as_itself(captured: Capture) -> None:
    run = wandb.init()

    assert copy.deepcopy({"run": run})["run"] is run


def test_everything_may_be_called_of_a_disabled_run_and_needs_no_arguments(captured: Capture) -> None:
    with wandb.init(mode="disabled") as run:
        members = [name for name in dir(run) if not name.startswith("_") and name not in {"log", "finish", "join"}]
        for member in (getattr(run, name) for name in members):
            if callable(member):
                member()
        assert run.use_artifact("model:latest").name == "model:latest"

    assert [event for event in captured.events if event.kind != "ml.notice"] == []


def test_an_artifact_that_the_run_has_logged_is_used_and_another_needs_wandb(captured: Capture, tmp_path: Path) -> None:
    (tmp_path / "weights.txt").write_text("w")
    run = wandb.init(mode="offline")
    logged = run.log_model(tmp_path / "weights.txt", "net")

    assert run.use_artifact("net:latest") is logged
    assert Path(logged.download(tmp_path / "there"), "weights.txt").read_text() == "w"
    assert params(captured)["used_artifacts"] == {"net": "model"}
    with pytest.raises(wandb.CommError, match="other"):
        run.use_artifact("other:v0")


def has_ended(folder: Path) -> bool:
    lines = folder / "metrics.jsonl"
    return lines.is_file() and '"finished"' in lines.read_text()


@pytest.mark.parametrize("mode", ["offline", None])
def test_an_offline_script_is_written_to_wandb_too_unless_the_job_decides(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str | None
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.delenv("WANDB_MODE", raising=False)
    for exporters, is_written in (("", mode == "offline"), ("jsonl", False)):
        monkeypatch.setenv("OTEL_ML_EXPORTERS", exporters)
        with wandb.init(project="digits", mode=mode) as run:
            run.log({"loss": 1.0})
            folder = Path(run.sync_dir)
        eventually(lambda folder=folder: has_ended(folder), timeout=120)
        if is_written:
            eventually(lambda folder=folder: any(folder.parent.parent.rglob("*.wandb")), timeout=120)
        else:
            assert not any(folder.rglob("*.wandb"))
        assert "WANDB_MODE" not in os.environ
