"""What a script for W&B reads back from its run, and what it gets where W&B raises an error."""

from __future__ import annotations

import copy
import enum
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_ml.compat import wandb
from otel_ml.testing import Capture, capture
from tests.unit.otel_ml.compat.recorded import params, steps_of


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run
        wandb.finish()


class Kind(enum.Enum):
    SMALL = 1


def test_a_run_may_get_another_name_other_tags_and_notes(captured: Capture) -> None:
    run = wandb.init(project="digits", name="first", tags=["a"])
    run.name = f"second-{run.id[-2:]}"
    run.tags += ("b",)
    run.notes = "with warmup"
    wandb.save()

    assert (run.name, run.tags, run.notes) == (f"second-{run.id[-2:]}", ("a", "b"), "with warmup")
    assert (run.settings.run_name, run.settings.run_tags) == (run.name, run.tags)
    [said] = captured.notices
    assert "TypeError: save() is missing 'glob_str'" in said


def test_a_disabled_run_may_get_another_name_too(captured: Capture) -> None:
    run = wandb.init(mode="disabled")
    run.name = "second"
    run.tags = ["a"]

    assert (run.name, run.tags) == ("second", ("a",))


def test_values_of_the_config_are_as_plain_as_wandbs_are(captured: Capture) -> None:
    import torch

    given: dict[str, Any] = {
        "--learning-rate": np.float32(0.5),
        "path": Path("/data"),
        "kind": Kind.SMALL,
        "dtype": torch.float16,
        "betas": (0.9, np.float64(0.99)),
        "scale": torch.tensor(2.0),
    }
    run = wandb.init(config=given)

    wanted = {
        "learning-rate": 0.5, "path": "/data", "kind": "SMALL", "dtype": "torch.float16", "betas": [0.9, 0.99],
        "scale": 2.0,
    }  # fmt: skip
    assert run.config.as_dict() == run.config._as_dict() == params(captured) == wanted
    assert type(run.config["learning-rate"]) is type(run.config.betas[1]) is float


def test_the_summary_has_texts_lists_and_what_the_run_says_of_itself(captured: Capture) -> None:
    run = wandb.init()
    with pytest.raises(KeyError):
        run.summary["_step"]
    run.log({"loss": 1.0, "note": "warm", "parts": [1, 2]})
    run.log({"loss": 2.0}, step=7)
    run.summary["best"] = np.float32(0.5)

    assert (run.summary["note"], run.summary.parts, run.summary._as_dict()["loss"]) == ("warm", [1, 2], 2.0)
    assert (run.summary["_step"], run.summary.get("_step"), run.summary._step) == (7, 7, 7)
    assert 0 <= run.summary["_runtime"] < run.summary["_timestamp"]
    assert type(run.summary["best"]) is float
    assert run.summary.get("_no_such") is None
    for missing in (KeyError, AttributeError):  # W&B raises the first, and `getattr(…, default)` wants the second
        with pytest.raises(missing, match="no_such"):
            _ = run.summary.no_such


def test_the_summary_has_small_arrays_as_lists_as_wandbs_has(captured: Capture) -> None:
    import torch

    run = wandb.init()
    weights = np.arange(3.0)
    run.log({"a": weights, "t": torch.tensor([1.5, 2.5], requires_grad=True), "n": {"q": np.eye(2)}})
    run.log({"edge": np.arange(32), "more": np.arange(33)})
    run.summary["set"] = np.array([1, 2])
    weights += 1
    run.finish()

    wanted = {
        "a": [0.0, 1.0, 2.0],
        "t": [1.5, 2.5],
        "n.q": [[1.0, 0.0], [0.0, 1.0]],
        "edge": [*range(32)],
        "set": [1, 2],
    }
    assert run.summary._as_dict() == wanted


def test_the_settings_of_a_run_name_it_as_its_arguments_do(captured: Capture) -> None:
    settings = wandb.Settings(project="of-settings", run_group="night", run_tags=("a",), run_notes="n")
    run = wandb.init(project="digits", settings=settings)

    assert (run.project, run.group, run.tags, run.notes) == ("digits", "night", ("a",), "n")


def test_what_is_logged_after_the_end_and_in_no_run_is_said_with_wandbs_errors(
    captured: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = wandb.init()
    run.finish()
    run.log({"loss": 1.0})

    assert any("run.log() at test_wandb_read_back.py" in notice for notice in captured.notices)
    assert any("UsageError: Run (" in notice for notice in captured.notices)


def test_a_row_without_init_begins_a_run_and_says_that_wandb_raises(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "none")
    wandb.log({"loss": 1.0})
    assert wandb.run is not None
    wandb.finish()

    assert "Error: You must call wandb.init() first. A run begins" in capsys.readouterr().err


def test_a_step_that_is_none_is_said_with_wandbs_error(captured: Capture) -> None:
    run = wandb.init()
    run.log({"loss": 1.0}, step="three")  # type: ignore[arg-type]

    assert steps_of(captured, "loss") == {0: 1.0}
    assert any("TypeError: a step is a whole number" in notice for notice in captured.notices)


def test_what_is_said_to_a_run_that_is_finished_is_not_in_the_run_after_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "jsonl")
    (tmp_path / "old.txt").write_text("old")
    first = wandb.init(project="first")
    first.finish()
    second = wandb.init(project="second", name="second")
    written = Path(second.dir).parent / "metrics.jsonl"
    first.log({"old": 1.0, "old/text": "old"})
    first.config.old = 1
    first.summary.update({"old": 1, "text": "old"})
    first.alert("old")
    first.name, first.tags = "old", ("old",)
    first.log_artifact("old.txt")
    first.save("old.txt")
    second.log({"new": 1.0})
    second.finish()

    rows = [row for row in map(json.loads, written.read_text().splitlines()) if "otel_ml" not in row.get("params", {})]
    assert {name for row in rows for name in row.get("values", {}) if not name.startswith("otel_ml/")} == {"new"}
    assert not [row for row in rows if '"old' in json.dumps(row)]  # no word that has it, such as folder
    said = capsys.readouterr().err
    for call in ("log()", "summary", "alert()", "name", "log_artifact()", "save()"):
        assert f"run.{call} at test_wandb_read_back.py" in said
    assert f"UsageError: Run ({first.id}) is finished." in said


def test_what_was_logged_in_a_dictionary_is_in_one_in_the_summary(captured: Capture) -> None:
    run = wandb.init()
    run.log({"train": {"loss": 1.0, "by": {"task": 2.0}}, "trainer": 5.0})

    assert (run.summary["train"]["loss"], run.summary["train"]["by"]["task"]) == (1.0, 2.0)
    assert (run.summary.train.loss, dict(run.summary["train"])) == (1.0, {"loss": 1.0, "by.task": 2.0})
    assert ("train" in run.summary, "tra" in run.summary, run.summary.get("tra")) == (True, False, None)
    run.summary["train"]["best"] = 0.5
    assert run.summary["train"]["best"] == 0.5
    run._last_words()
    assert [event.body for event in captured.events if event.kind == "ml.summary"] == [{"train.best": 0.5}]


def test_a_value_that_the_summary_does_not_have_may_be_deleted(captured: Capture) -> None:
    run = wandb.init()
    del run.summary["never"]

    assert not captured.notices


def test_a_metric_whose_summary_is_none_is_not_in_the_summary(captured: Capture) -> None:
    run = wandb.init()
    run.define_metric("n", summary="none")
    run.define_metric("m", summary="max,none")
    run.define_metric("seen", summary="max")
    run.define_metric("val/*", summary="none")
    for value in (1.0, 3.0, 2.0):
        run.log({"n": value, "m": value, "seen": value, "val/a": value, "loss": value})

    assert {key for key in run.summary if not key.startswith("_")} == {"seen", "loss"}
    assert captured.values("n") == [1.0, 3.0, 2.0]
    run.summary["n"] = 5
    assert run.summary["n"] == 5


# What W&B 0.31 has after the same calls; a dictionary is a `define_metric()`, a number a row.
@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([{"summary": "min"}, 3, 1, 9, 2, {"summary": "max"}, 5, 4], {"min": 1.0, "max": 9.0}),
        ([{"summary": "mean"}, 3, 1, 9, 2, {"summary": "first"}, 5, 4], {"mean": 4.0, "first": 3.0}),
        ([{"summary": "min"}, 3, 1, 9, 2, {"summary": "max", "overwrite": True}, 5, 4], {"max": 9.0}),
        ([{"summary": "min"}, 3, 9, {"overwrite": True}, 1], 1.0),
        ([{"summary": "none"}, 3, 9, {"summary": "min"}, 4], {"min": 3.0}),
        ([{"summary": "min"}, 3, {"summary": "none"}, 1, {"summary": "max"}, 4], {"min": 1.0, "max": 4.0}),
        ([{"summary": "min"}, 3, {"step_metric": "epoch"}, 5], {"min": 3.0}),
        # A glob is asked at a name's first value; the name's own definition is added to that.
        ([{"name": "l*", "summary": "min"}, 3, 1, 9, {"name": "l*", "summary": "max"}, 5], {"min": 1.0}),
        ([{"name": "l*", "summary": "min"}, 3, 1, 9, {"summary": "max"}, 5], {"min": 1.0, "max": 9.0}),
        ([{"name": "l*", "summary": "min"}, {"name": "l*", "summary": "max"}, 3, 1], {"min": 1.0, "max": 3.0}),
        ([{"name": "l*", "summary": "min"}, {"summary": "max"}, 3, 1], {"max": 3.0}),
    ],
)
def test_what_several_definitions_ask_for_is_in_the_summary_as_in_wandb(
    captured: Capture, calls: list[Any], expected: Any
) -> None:
    run = wandb.init()
    for call in calls:
        if isinstance(call, dict):
            run.define_metric(**{"name": "loss", **call})
        else:
            run.log({"loss": call})
    found = run.summary["loss"]
    run._last_words()

    assert found == expected
    written = {f"loss.{wanted}": value for wanted, value in expected.items()} if isinstance(expected, dict) else {}
    assert summary(captured) == written


def test_a_definition_means_a_name_with_brackets_by_these_brackets_as_in_wandb(captured: Capture) -> None:
    run = wandb.init()
    run.define_metric("val[1]/*", summary="max")
    run.define_metric("acc[ab]", summary="max")
    for value in (3.0, 1.0):
        run.log({"val[1]/loss": value, "val1/loss": value, "acc[ab]": value, "acca": value})

    assert {name: run.summary[name] for name in ("val[1]/loss", "val1/loss", "acc[ab]", "acca")} == {
        "val[1]/loss": {"max": 3.0},
        "val1/loss": 1.0,
        "acc[ab]": {"max": 3.0},
        "acca": 1.0,
    }


def test_settings_that_nobody_gives_are_those_of_wandb(captured: Capture) -> None:
    run = wandb.init(mode="offline")

    assert (run.settings._offline, run.settings._noop, run.settings.silent) == (True, False, False)
    assert (wandb.Settings().mode, wandb.Settings().run_id, wandb.Settings(mode="disabled")._noop) == (
        "online",
        None,
        True,
    )
    assert copy.deepcopy(wandb.Settings(console="off")) == wandb.Settings(console="off")
    with pytest.raises(AttributeError):
        _ = wandb.Settings().no_such_setting


def test_settings_that_only_the_package_knows_are_those_of_the_package(captured: Capture) -> None:
    original = import_module("wandb").Settings()
    settings = wandb.init().settings

    assert (settings.base_url, settings.wandb_dir, settings.root_dir) == (
        original.base_url, original.wandb_dir, original.root_dir,
    )  # fmt: skip


def summary(captured: Capture) -> dict[str, float]:
    """Return what the end of a run has written into its summary."""
    return {
        name: value for event in captured.events if event.kind == "ml.summary" for name, value in event.body.items()
    }
