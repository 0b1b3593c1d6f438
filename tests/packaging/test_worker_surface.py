"""What `import otel_ml` gives, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import otel_ml
from tests.packaging.test_public_api import PUBLIC


def test_the_public_names_are_these_in_this_order() -> None:
    assert list(otel_ml.__all__) == PUBLIC
    assert all(hasattr(otel_ml, name) for name in PUBLIC)


def test_importing_loads_only_what_records() -> None:
    heavy = {"torch", "numpy", "wandb", "mlflow", "tensorboard", "grpc", "opentelemetry", "ssl", "subprocess", "socket"}
    program = f"import sys, otel_ml; print(sorted({heavy!r} & set(name.split('.')[0] for name in sys.modules)))"

    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert output == "[]\n"
