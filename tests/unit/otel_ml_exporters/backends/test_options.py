"""An option of another kind than it takes is refused when a run is configured, with its name and what is expected."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import pytest

from otel_ml_service.exporter_makers import exporter_makers

KUBEFLOW = {"url": "https://trainer/status", "token": "/token"}
OTLP = {"endpoint": "http://gateway:4318"}

WRONG = [
    ("console", {"digits": "4"}, "console.digits: expected 1 to 17, got '4'."),
    ("console", {"digits": 0.5}, "console.digits: expected 1 to 17, got 0.5."),
    ("console", {"digits": 4.0}, "console.digits: expected 1 to 17, got 4.0."),
    ("console", {"digits": True}, "console.digits: expected 1 to 17, got True."),
    ("console", {"width": "80"}, "console.width: expected at least 20, got '80'."),
    ("console", {"metrics": 5}, "console.metrics: expected a name or a list of names, got 5."),
    ("console", {"metrics": ["loss", 5]}, "console.metrics: expected a name or a list of names, got ['loss', 5]."),
    ("kubeflow", {**KUBEFLOW, "metrics": 5}, "kubeflow.metrics: expected a name or a list of names, got 5."),
    ("kubeflow", {**KUBEFLOW, "timeout": "5"}, "kubeflow.timeout: expected seconds above 0 and up to 600, got '5'."),
    (
        "kubeflow",
        {**KUBEFLOW, "timeout": math.nan},
        "kubeflow.timeout: expected seconds above 0 and up to 600, got nan.",
    ),
    ("kubeflow", {**KUBEFLOW, "url": 5}, "kubeflow.url: expected https://…, got 5."),
    ("kubeflow", {**KUBEFLOW, "token": 5}, "kubeflow.token: expected the file of a token, got 5."),
    ("kubeflow", {**KUBEFLOW, "certificate": 5}, "kubeflow.certificate: expected a file of CA certificates, got 5."),
    ("otlp", {**OTLP, "compression": ["gzip"]}, "otlp.compression: expected 'gzip' or 'none', got ['gzip']."),
    ("otlp", {**OTLP, "certificate": __file__}, "otlp.certificate: expected CA certificates (PEM), got "),
    ("traces", {"endpoint": "http://gateway:99999"}, "traces.endpoint: expected the base URL of an OTLP/HTTP receiver"),
    ("wandb", {"tags": "baseline"}, "wandb.tags: expected a list of texts, got 'baseline'."),
    ("wandb", {"tags": 5}, "wandb.tags: expected a list of texts, got 5."),
    ("wandb", {"tags": ["a", 5]}, "wandb.tags: expected a list of texts, got ['a', 5]."),
    ("wandb", {"mode": ["online"]}, "wandb.mode: expected one of auto, online, offline, disabled, run, dryrun, got "),
]


@pytest.mark.parametrize(("name", "options", "said"), WRONG, ids=[f"{row[0]}-{at}" for at, row in enumerate(WRONG)])
def test_what_an_option_cannot_be_is_said(name: str, options: Mapping[str, Any], said: str) -> None:
    makers, left_out = exporter_makers({name: options})

    assert not makers
    assert len(left_out.problems) == 1
    assert re.search(re.escape(said), left_out.problems[0])
    assert "otel-ml explain wrong-setting" in left_out.problems[0]


@pytest.mark.parametrize("metrics", ["loss", ["loss", "lr"], ("loss",), []])
def test_metrics_are_a_name_or_names(metrics: object) -> None:
    makers, left_out = exporter_makers({"console": {"metrics": metrics}})

    assert (makers.keys(), left_out.problems) == ({"console"}, ())
