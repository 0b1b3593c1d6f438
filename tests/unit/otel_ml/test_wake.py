from __future__ import annotations

import pytest

from otel_ml._internal.wake import is_asked_for


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"OTEL_ML_EXPERIMENT_NAME": "x"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_ML_RANK": "0", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_the_environment_asks_for_recording_or_not(environ: dict[str, str], expected: bool) -> None:
    assert is_asked_for(environ) is expected
