"""Variables that are meant for other programs, or misspelled: training goes on, with their defaults, and it is said."""

from __future__ import annotations

from pathlib import Path

import otel_ml
from tests.integration.worker_process import environment, run

ODD = {
    "OTEL_SDK_DISABLED": "1",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
    "OTEL_EXPORTER_OTLP_COMPRESSION": "zstd",
    "OTEL_EXPORTER_OTLP_INSECURE": "1",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "abc",
    "OTEL_RESOURCE_ATTRIBUTES": "a,b=c,service.name=x y/z",
    "OTEL_ML_FLUSH_INTERVAL": "abc",
    "OTEL_ML_RANK": "x",
    "OTEL_ML_ALLOWED_LATENESS": "soon",
    "OTEL_ML_MODE": "remote",
    "WORLD_SIZE": "0",
    "RANK": "²",
}
"""Also for the service, which inherits them."""
SAID = {name for name in ODD if name not in {"OTEL_EXPORTER_OTLP_TIMEOUT", "WORLD_SIZE", "RANK"}}

PROGRAM = """
    import otel_ml
    with otel_ml.init("odd", id="one"):
        for step in otel_ml.steps(range(3)):
            otel_ml.log({"loss": float(step)})
    print("TRAINED")
"""


def test_no_variable_stops_training_and_each_is_said_once(tmp_path: Path) -> None:
    output, errors = run(PROGRAM, environment(tmp_path, {"OTEL_ML_EXPORTERS": "jsonl", **ODD}), tmp_path)

    assert output == "TRAINED\n"
    assert {name: errors.count(f"otel_ml: {name}: ") for name in sorted(SAID)} == dict.fromkeys(sorted(SAID), 1)
    assert " 0 lost" in errors
    assert otel_ml.read(tmp_path / "runs" / "odd" / "one")["loss"] == ([0, 1, 2], [0.0, 1.0, 2.0])


def test_in_strict_mode_all_of_them_are_named_in_one_error(tmp_path: Path) -> None:
    _, errors = run(PROGRAM, environment(tmp_path, {"OTEL_ML_STRICT": "true", **ODD}), tmp_path, code=1)

    assert all(f"{name}: " in errors for name in SAID - {"OTEL_ML_ALLOWED_LATENESS"})
