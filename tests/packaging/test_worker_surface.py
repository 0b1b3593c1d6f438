"""What `import otel_ml` gives, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import otel_ml

PUBLIC = [
    *("ConfigError", "MissingDependencyError", "OtelMLError", "Run", "child_env", "define_metric", "event", "flush"),
    *(
        "get_meter",
        "init",
        "instrument_ray",
        "log",
        "log_artifact",
        "log_audio",
        "log_checkpoint",
        "log_figure",
        "log_histogram",
    ),
    *(
        "log_image",
        "log_params",
        "log_table",
        "log_text",
        "operation",
        "read",
        "record",
        "set_step",
        "shutdown",
        "step",
        "steps",
    ),
    *("timed", "timer"),
]


def test_the_public_names_are_these_at_most_30() -> None:
    assert list(otel_ml.__all__) == PUBLIC
    assert len(PUBLIC) <= 30
    assert all(hasattr(otel_ml, name) for name in PUBLIC)


def test_importing_loads_only_what_records() -> None:
    heavy = {"torch", "numpy", "wandb", "mlflow", "tensorboard", "grpc", "opentelemetry", "ssl", "subprocess", "socket"}
    program = f"import sys, otel_ml; print(sorted({heavy!r} & set(name.split('.')[0] for name in sys.modules)))"

    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert output == "[]\n"
