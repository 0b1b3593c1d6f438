from __future__ import annotations

import pytest

from otel_ml import env
from otel_ml._internal.lifecycle.run_requested import is_run_requested
from otel_ml.variable import AnyVariable
from otel_ml_service.env import VARIABLES as OF_THE_SERVICE


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"OTEL_ML_EXPERIMENT_NAME": "x"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://x"}, True),
        ({"OTEL_ML_EXPERIMENT_NAME": " "}, False),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_ML_RANK": "0", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_the_environment_asks_for_recording_or_not(environ: dict[str, str], expected: bool) -> None:
    assert is_run_requested(environ) is expected


TUNING = (
    env.CONSOLE, env.FLUSH_INTERVAL, env.TIMER_LEVEL, env.TRACES, env.SPANS_PER_STEP, env.TOKEN, env.TOKEN_FILE,
    env.STRICT, env.CAPTURE, env.SPOOL_MAX, env.EXIT_WAIT, env.TRACES_TO,
)  # fmt: skip


@pytest.mark.parametrize("variable", env.VARIABLES, ids=lambda variable: variable.name)
def test_of_the_workers_variables_those_that_only_tune_recording_ask_for_nothing(variable: AnyVariable) -> None:
    assert is_run_requested({variable.name: "1"}) is (variable not in TUNING)


def test_of_the_services_variables_those_ask_that_the_worker_has_too() -> None:
    asking = {variable.name for variable in OF_THE_SERVICE if is_run_requested({variable.name: "1"})}

    assert asking == {
        "OTEL_ML_EXPERIMENT_ID", "OTEL_ML_EXPERIMENT_NAME", "OTEL_ML_RUN_NAME", "OTEL_ML_EXPORTERS", "OTEL_ML_DIR"
    }  # fmt: skip
