from __future__ import annotations

import subprocess
import sys

import pytest

import otel_ml
from otel_ml import Run


@pytest.mark.parametrize("name", sorted({name for name in dir(Run) if name[0] != "_"} - {*otel_ml.__all__}))
def test_what_only_a_run_has_is_answered_with_how_to_ask_it(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"run = otel_ml\.init\(…\), run\.{name}$"):
        getattr(otel_ml, name)


def test_what_is_mistyped_is_answered_with_the_nearest_name() -> None:
    done = subprocess.run([sys.executable, "-c", "import otel_ml; otel_ml.log_tabel"], capture_output=True, text=True)

    assert "module 'otel_ml' has no attribute 'log_tabel'. Did you mean: 'log_table'?" in done.stderr
