"""The configuration of a script written for W&B is recorded as W&B documents."""

from __future__ import annotations

import argparse
import copy
import datetime
import math
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from otel_ml.compat import wandb
from otel_ml.testing import Capture, capture
from tests.unit.otel_ml.compat.recorded import params
from tests.unit.otel_ml.lazy import Lazy


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run
        wandb.finish()


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


def test_a_config_file_that_is_no_utf_8_is_said_and_ends_nothing(captured: Capture, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes("name: Zoë".encode("latin-1"))

    wandb.init(config=str(file))

    assert dict(wandb.config) == {}
    assert any("the file cannot be read" in notice for notice in captured.notices)


def test_a_config_of_which_a_value_is_missing_is_taken_without_it(captured: Capture) -> None:
    run = wandb.init(config=Lazy())
    run.config.update({"model": Lazy()})

    assert dict(run.config) == {"dim": 64, "model": run.config["model"]}
    assert [event.body for event in captured.events if event.kind == "ml.params"] == [
        {"dim": 64},
        {"model": {"dim": 64}},
    ]
    first, second = captured.notices
    assert "config=Lazy at test_wandb_config.py" in first
    assert "cannot read model.missing" in second


def test_keys_of_the_config_are_chosen_and_files_have_its_defaults(
    captured: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config-defaults.yaml").write_text("lr: {value: 1}\nepochs: {value: 5}\n")
    Path("sweep.yaml").write_text("wandb_version: 1\nmomentum: {value: 0.5}\n")
    monkeypatch.setenv("WANDB_SWEEP_PARAM_PATH", "sweep.yaml")
    wandb.init(config={"lr": 2, "unwanted": 3, "momentum": 1}, config_include_keys=["lr", "momentum"])

    assert params(captured) == {"lr": 2, "epochs": 5, "momentum": 0.5}


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


def test_defaults_that_are_an_empty_file_are_said(captured: Capture, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config-defaults.yaml").touch()

    assert dict(wandb.init(config={"lr": 1}).config) == {"lr": 1}
    [said] = captured.notices
    assert "'config-defaults.yaml'" in said
    assert "the file is empty" in said


def test_a_second_init_returns_the_run_with_its_own_configuration_and_says_what_it_does_not_take(
    captured: Capture,
) -> None:
    run = wandb.init(config={"lr": 1, "depth": 2})

    assert wandb.init(config={"lr": 1}) is run
    assert captured.notices == []
    assert wandb.init(config={"lr": 3, "depth": 2, "width": 4}) is run
    assert dict(run.config) == params(captured) == {"lr": 1, "depth": 2}
    [said] = captured.notices
    assert "wandb.init(config=…)" in said
    assert "'lr', 'width'" in said


def test_classes_and_functions_are_recorded_by_their_names_and_dates_as_iso_8601(captured: Capture) -> None:
    sizes = {"when": datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC), "raw": b"x", "rows": slice(2)}
    run = wandb.init(config={"optimizer": argparse.Namespace, "losses": [math.sqrt, cross_entropy], "sizes": sizes})

    here = "tests.unit.otel_ml.compat.test_wandb_config"
    assert (
        params(captured)
        == dict(run.config)
        == {
            "optimizer": "argparse.Namespace",
            "losses": ["math.sqrt", f"{here}.cross_entropy"],
            "sizes": {
                "when": "2026-01-02T03:00:00+00:00",
                "raw": "x",
                "rows": {"slice_start": None, "slice_step": None, "slice_stop": 2},
            },
        }
    )


def cross_entropy() -> None: ...


def test_names_that_begin_with_an_underscore_are_recorded_and_found_by_their_key_alone(captured: Capture) -> None:
    run = wandb.init(config=argparse.Namespace(lr=0.1, _seed=3))

    assert params(captured) == {"lr": 0.1, "_seed": 3}
    assert (list(run.config.keys()), list(run.config.items()), list(run.config.values())) == (
        ["lr"],
        [("lr", 0.1)],
        [0.1],
    )
    assert (dict(run.config), run.config.as_dict(), run.config["_seed"]) == ({"lr": 0.1}, {"lr": 0.1}, 3)


def test_flags_of_absl_are_parameters(captured: Capture) -> None:
    flags = import_module("absl.flags").FlagValues()
    import_module("absl.flags").DEFINE_float("lr", 0.5, "The rate.", flag_values=flags)
    flags(["program"])
    wandb.init().config.update(flags)

    assert params(captured) == {"lr": 0.5}
