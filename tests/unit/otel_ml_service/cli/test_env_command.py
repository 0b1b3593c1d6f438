"""`otel-ml env`: every setting with its value, and what is wrong with it."""

from __future__ import annotations

import json
import os

import pytest

from otel_ml_service.cli import main
from otel_ml_service.cli.env_command import markdown


@pytest.fixture(autouse=True)
def _none_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")


def objects(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, str]]:
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len({row["name"] for row in rows}) == len(rows), "each setting once"
    return {row["name"]: (row["value"], row["from"]) for row in rows}


def test_values_are_shown_as_they_are_written_and_say_where_they_are_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "jsonl,tensorboard")
    monkeypatch.setenv("OTEL_ML_LISTEN_HTTP", "0.0.0.0:4444")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "a=1,b=2")
    monkeypatch.setenv("OTEL_ML_TOKEN", "very-secret")

    assert main(["env", "--json"]) == 0

    found = objects(capsys)
    assert found["OTEL_ML_EXPORTERS"] == ("jsonl,tensorboard", "environment")
    assert found["OTEL_ML_LISTEN_HTTP"] == ("0.0.0.0:4444", "environment")
    assert found["OTEL_ML_LISTEN_GRPC"] == ("127.0.0.1:4317", "default")
    assert found["OTEL_EXPORTER_OTLP_ENDPOINT"] == ("none", "default")
    assert found["OTEL_ML_FLUSH_INTERVAL"][0].endswith(" ms")
    assert "very-secret" not in str(found)
    assert found["OTEL_ML_TOKEN"][0]


def test_only_what_the_environment_sets(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "jsonl")
    assert main(["env", "--set", "--json"]) == 0
    assert objects(capsys) == {"OTEL_ML_EXPORTERS": ("jsonl", "environment")}

    assert main(["env", "--set"]) == 0
    shown = capsys.readouterr().out
    assert "OpenTelemetry's own" not in shown
    assert [line.split() for line in shown.splitlines() if "OTEL" in line] == [
        ["OTEL_ML_EXPORTERS", "jsonl", "environment"]
    ]

    monkeypatch.delenv("OTEL_ML_EXPORTERS")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://10.0.0.7:4318")
    assert main(["env", "--set"]) == 0
    shown = capsys.readouterr().out
    assert "sets none" not in shown
    assert shown.index("OpenTelemetry's own") < shown.index("http://10.0.0.7:4318")

    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    assert main(["env", "--set"]) == 0
    assert capsys.readouterr().err.count("The environment sets none: each setting has its default.") == 1


def test_all_settings_stand_in_two_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env"]) == 0

    shown = capsys.readouterr().out
    own = shown.index("OpenTelemetry's own")
    assert shown.index("OTEL_ML_DIR ") < own < shown.index("OTEL_EXPORTER_OTLP_ENDPOINT")


def test_what_cannot_be_read_and_what_nobody_reads_is_said_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_ML_FLUSH_INTERVAL", "often")
    monkeypatch.setenv("OTEL_ML_EXPORTER", "jsonl")

    assert main(["env"]) == 1

    said = capsys.readouterr().err
    assert "OTEL_ML_FLUSH_INTERVAL" in said
    assert "'often'" in said
    assert "OTEL_ML_EXPORTER: there is no such setting. Did you mean OTEL_ML_EXPORTERS?" in " ".join(said.split())

    monkeypatch.delenv("OTEL_ML_FLUSH_INTERVAL")
    assert main(["env"]) == 1, "one of both is enough"
    monkeypatch.delenv("OTEL_ML_EXPORTER")
    monkeypatch.setenv("OTEL_ML_FLUSH_INTERVAL", "often")
    assert main(["env"]) == 1


def test_the_table_of_the_documentation_has_defaults_and_no_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_ML_LISTEN_HTTP", "0.0.0.0:4444")

    assert main(["env", "--markdown"]) == 0

    shown = capsys.readouterr().out.rstrip("\n")
    assert shown == markdown()
    rows = {cells[1].strip(" `"): cells[2].strip() for line in shown.splitlines()[2:] for cells in [line.split("|")]}
    assert rows["OTEL_ML_LISTEN_HTTP"] == "`127.0.0.1:4318`"
    assert rows["OTEL_ML_TOKEN"] == "–"
    assert rows["OTEL_ML_FLUSH_INTERVAL"].endswith("` ms")
    assert len(rows) == len(shown.splitlines()) - 2
