"""What is kept of how a run is served, and got back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_ml.exceptions import VersionError
from otel_ml_service.live_runs.served_settings import ServedSettings, served_as
from otel_ml_service.versions import SERVED


def kept(folder: Path, options: dict[str, Any], file: Path | None = None, **environ: str) -> ServedSettings:
    served_as({"mlflow": options}, environ, file, is_of_serve=True).keep(folder)
    found = ServedSettings.read(folder)
    assert found is not None
    return found


def had(served: ServedSettings, **environ: str) -> tuple[Any, str]:
    """Return the options of the exporter, and what is missing of them."""
    problems: list[str] = []
    return served.options(environ, problems)["mlflow"], "\n".join(problems)


def test_options_come_back_as_they_were(tmp_path: Path) -> None:
    options = {"every": 10, "tags": ["a", "b"], "store": "sqlite:///x.db", "nested": {"level": 1.5, "none": None}}

    assert had(kept(tmp_path, options)) == (options, "")


@pytest.mark.parametrize(
    "written",
    ["${env:A}", "Bearer ${env:A}", "http://${env:A}:${env:A}@host", "http://user:${env:A}@host/${env:A}"],
)
@pytest.mark.parametrize("name", ["store", "password", "authorization"])
def test_a_reference_is_kept_and_looked_up_again(tmp_path: Path, name: str, written: str) -> None:
    if name != "store" and "host" in written:
        written = "${env:A}"  # what has a secret's name is hidden where more than a reference stands there
    served = kept(tmp_path, {name: written})

    assert had(served, A="a-value") == ({name: written.replace("${env:A}", "a-value")}, "")
    assert "the variable A is not set. Set it as it was" in had(served)[1]


@pytest.mark.parametrize(
    "options",
    [
        {"api_key": "s3cret-s3cret"},
        {"api_key": "s3cret-s3cret${env:A}"},
        {"store": "http://user:s3cret-s3cret@host"},
        {"store": "http://user:s3cret-s3cret${env:A}@host"},
        {"headers": {"x-team": "s3cret-s3cret"}},
        {"nested": [{"password": "s3cret-s3cret"}]},
    ],
    ids=["by name", "beside a reference", "in a URL", "there beside a reference", "in a header", "nested"],
)
def test_a_secret_is_not_kept_and_comes_from_the_file_as_long_as_that_has_it(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    file = tmp_path / "otel-ml.yaml"
    file.write_text(f"exporters: {{mlflow: {options!r}}}")
    served = kept(tmp_path, options, file)

    assert "s3cret" not in (tmp_path / "served.json").read_text()
    found, missing = had(served, A="")
    assert (str(found), missing) == (str(options).replace("${env:A}", ""), "")
    file.write_text("exporters: {mlflow: {}}")
    assert f"exporters.mlflow.{next(iter(options))}" in had(served)[1]


def test_variables_of_its_exporters_are_kept_and_those_that_held_a_secret_are_asked_for(tmp_path: Path) -> None:
    secret = {"MLFLOW_TRACKING_URI": "http://user:s3cret-s3cret@host", "MLFLOW_TRACKING_TOKEN": "s3cret-s3cret"}
    served = kept(tmp_path, {}, None, MLFLOW_EXPERIMENT="x", WANDB_PROJECT="y", OTEL_ML_LISTEN_HTTP=":1", **secret)

    assert served.environ == {"MLFLOW_EXPERIMENT": "x"}
    assert "s3cret" not in (tmp_path / "served.json").read_text()
    [missing] = served.missing({})
    assert "The variable MLFLOW_TRACKING_URI is not set" in missing
    assert served.missing(secret) == []


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"exporters": 1}', "[" * 100_000])
def test_a_file_that_cannot_be_read_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "served.json").write_text(content)

    assert ServedSettings.read(tmp_path) is None


def test_what_a_newer_version_kept_is_named_and_not_taken_for_nothing(tmp_path: Path) -> None:
    kept(tmp_path, {"every": 10})
    path = tmp_path / "served.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": SERVED + 1, "writer": "9.1.0"}))

    with pytest.raises(VersionError, match=r"written by otel_ml 9\.1\.0"):
        ServedSettings.read(tmp_path)


def test_what_was_kept_before_it_had_a_version_is_read(tmp_path: Path) -> None:
    served = kept(tmp_path, {"every": 10})
    path = tmp_path / "served.json"
    content = json.loads(path.read_text())
    del content["version"], content["writer"]
    path.write_text(json.dumps(content))

    assert ServedSettings.read(tmp_path) == served
