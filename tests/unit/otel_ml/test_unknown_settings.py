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
