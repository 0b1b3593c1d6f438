"""`otel-ml serve`: real processes, real sockets."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

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
