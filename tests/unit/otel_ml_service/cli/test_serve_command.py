"""`otel-ml serve`: real processes, real sockets."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from otel_ml_service.cli.serve_command import job_settings
from tests.unit.otel_ml_service.cli.program import otel_ml
from tests.unit.otel_ml_service.cli.served import served

pytestmark = pytest.mark.long


def test_serve_answers_and_ends_on_sigterm(tmp_path: Path) -> None:
    with served(tmp_path) as url, urllib.request.urlopen(f"{url}/healthz", timeout=5) as answer:
        assert json.load(answer)["service"] == "otel_ml"


def test_serve_says_a_wrong_exporter_and_a_wrong_setting_at_once(tmp_path: Path) -> None:
    done = otel_ml(tmp_path, "serve", "--to", "jsonl,tensorbord", OTEL_ML_DIR_MAX="much")

    assert done.returncode != 0
    assert "2 settings are wrong" in done.stderr
    assert "OTEL_ML_DIR_MAX: expected a size" in done.stderr
    assert "'tensorbord'" in done.stderr


def test_serve_refuses_an_open_address_without_a_token(tmp_path: Path) -> None:
    done = otel_ml(tmp_path, "serve", "--http", "0.0.0.0:0")

    assert done.returncode == 1
    assert "OTEL_ML_TOKEN" in done.stderr


def test_serve_says_an_address_that_another_host_can_send_to_and_what_tls_needs() -> None:
    everywhere, authority, token = job_settings("https://0.0.0.0:4318", demands_a_token=True)

    assert everywhere.startswith("  export OTEL_EXPORTER_OTLP_ENDPOINT=https://HOST:4318 ")
    assert authority.startswith("  export OTEL_EXPORTER_OTLP_CERTIFICATE=")
    assert "OTEL_ML_TOKEN" in token
    assert "//HOST:4318" in job_settings("http://[::]:4318", demands_a_token=False)[0]
    assert job_settings("http://127.0.0.1:4318", demands_a_token=False) == [
        "  export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"
    ]
