from __future__ import annotations

import re
from pathlib import Path

import pytest

from otel_ml import env
from otel_ml._internal.lifecycle.unknown_settings import misspelled, unknown_settings
from otel_ml_service.env import VARIABLES as OF_THE_SERVICE

ROOT = Path(__file__).parents[3]


def test_the_names_of_the_service_are_those_of_its_table() -> None:
    shared = {variable.name for variable in env.VARIABLES}

    assert {variable.name for variable in OF_THE_SERVICE} - shared == env.OF_THE_SERVICE


def test_the_names_of_the_collector_are_those_that_its_configurations_read() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "collector-config").glob("*.yaml")]
    read = {name for text in texts for name in re.findall(r"\$\{env:(OTEL_ML_\w+)", text)}
    ours = {variable.name for variable in env.VARIABLES}

    assert read - ours == env.OF_THE_COLLECTOR


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("OTEL_ML_EXPORTER", "OTEL_ML_EXPORTERS"),
        ("OTEL_ML_WORLDSIZE", "OTEL_ML_WORLD_SIZE"),
        ("OTEL_ML_ALLOWED_LATNESS", "OTEL_ML_ALLOWED_LATENESS"),
        ("OTEL_ML_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        ("OTEL_ML_SERVICE_NAME", "OTEL_SERVICE_NAME"),
        ("OTEL_ML_EXPERIMENT", "OTEL_ML_EXPERIMENT_NAME"),  # as an id it would make all starts one run
        ("OTEL_ML_PROJECT", "OTEL_ML_EXPERIMENT_NAME"),
        ("OTEL_ML_RUN_ID", "OTEL_ML_EXPERIMENT_ID"),
        ("OTEL_ML_NAME", "OTEL_ML_RUN_NAME"),
        ("OTEL_ML_ROLE", "OTEL_SERVICE_NAME"),
        ("OTEL_ML_OUTPUT_DIR", "OTEL_ML_DIR"),
        ("otel_ml_dir", "OTEL_ML_DIR"),
        ("OTELML_RUN_NAME", "OTEL_ML_RUN_NAME"),
        ("OTEL_MLEXPORTER", "OTEL_ML_EXPORTERS"),
        ("OTEL_EXPORTER_OLTP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        ("OTEL_EXPORTER_OTLP_ENDPOINTS", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        ("OTEL_RESOURCE_ATTRIBUTE", "OTEL_RESOURCE_ATTRIBUTES"),
        ("OTEL_ML_SERVICE_3", ""),
        ("OTEL_ML_ACME_TOKEN", ""),
    ],
)
def test_what_may_be_meant_by_a_name(name: str, meant: str) -> None:
    assert unknown_settings({name: "x"}) == {name: meant}
    assert len(misspelled({name: "x"})) == bool(meant)


def test_no_setting_is_unknown() -> None:
    names = {variable.name for variable in (*env.VARIABLES, *OF_THE_SERVICE, *env.STANDARD)} | env.OF_THE_COLLECTOR

    assert unknown_settings(dict.fromkeys(names, "x")) == {}


def test_what_others_read_is_not_told() -> None:
    of_opentelemetry = [
        f"OTEL_EXPORTER_OTLP_{signal}{end}"
        for signal in ("", "TRACES_", "METRICS_", "LOGS_", "PROFILES_")
        for end in ("TIMEOUT", "HEADERS", "PROTOCOL", "INSECURE", "CLIENT_KEY", "CLIENT_CERTIFICATE", "CERTIFICATE")
    ]
    others = ["OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_PYTHON_LOG_LEVEL", "OTEL_PROPAGATORS", "OTELCOL_X"]

    assert unknown_settings(dict.fromkeys([*of_opentelemetry, *others], "x")) == {}
