"""A script written for W&B records the names and values that W&B documents, with only its import changed."""

from __future__ import annotations

import copy
import json
import os
import pickle
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import otel_ml
from otel_ml.compat import wandb
from otel_ml.testing import Capture, capture
from tests.e2e.jobs import the_run_in
from tests.unit.otel_ml.compat.recorded import events, params, steps_of
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


def test_nested_values_are_flattened_with_a_dot(captured: Capture) -> None:
    wandb.init()
    wandb.log({"train": {"loss": 1.0, "by": {"task": 2.0}}})

    assert steps_of(captured, "train.loss") == {0: 1.0}
    assert steps_of(captured, "train.by.task") == {0: 2.0}


@pytest.mark.feature("N9", "yes", "numpy scalars, 0-d and one-element arrays and tensors; the rest is reported by type")
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


@pytest.mark.feature("F14", "yes", "reported once with place and name, never raised")
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

    assert wandb.controller is original.controller
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
    assert dict(first.config) == {"a": 1}


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


def test_a_file_of_keys_that_is_no_utf_8_has_no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "netrc").write_bytes("machine api.wandb.ai login Zoë password secret".encode("latin-1"))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)

    assert wandb.login() is False


def test_a_key_of_wandb_login_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password stored\n")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    assert wandb.api.api_key == "stored"


def test_a_run_that_was_not_there_is_not_resumed_and_one_that_was_is(tmp_path: Path) -> None:
    with pytest.raises(wandb.UsageError, match="must"):
        wandb.init(project="digits", id="once", resume="must")
    first = wandb.init(project="digits", name="baseline", id="once", resume="allow")
    first.log({"loss": 1.0})
    first.finish()
    the_run_in(tmp_path / "otel-ml-runs")
    with pytest.raises(wandb.UsageError, match="never"):
        wandb.init(project="digits", id="once", resume="never")
    second = wandb.init(project="digits", id="once", resume="must")
    second.finish()

    assert (first.resumed, second.resumed, second.starting_step) == (False, True, 1)
    assert (second.name, second._run.name) == ("baseline", "baseline")


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


def test_a_disabled_run_can_be_pickled_with_what_a_program_holds(captured: Capture) -> None:
    with wandb.init(mode="disabled", config={"lr": 0.1}) as run:
        run.log({"loss": 1.0})
        again = pickle.loads(pickle.dumps({"model": "tiny", "run": run}))["run"]
        assert (again.disabled, again.summary["loss"], again.config["lr"]) == (True, 1.0, 0.1)
        again.log({"loss": 2.0})
        assert run.summary["loss"] == 1.0
    assert captured.points == []


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


def test_a_row_that_is_no_dictionary_is_said_once_also_of_metrics_that_are_defined(captured: Capture) -> None:
    run = wandb.init()
    run.define_metric("loss", summary="min")

    run.log([1, 2])  # type: ignore[arg-type]

    assert [notice.partition(" at ")[0] for notice in captured.notices] == ["wandb.log([1, 2])"]


def test_media_that_are_logged_as_a_list_are_not_in_the_summary(captured: Capture) -> None:
    run = wandb.init()
    run.log({"frames": [wandb.Image(np.zeros((2, 3), np.uint8))], "names": ["a", "b"], "none": []})

    assert dict(run.summary) == {"names": ["a", "b"], "none": []}
