"""What a run's records amount to."""

from __future__ import annotations

from otel_ml_exporters.records import Params
from otel_ml_exporters.runs.history import history


def test_parameters_below_one_name_that_come_one_after_the_other_are_all_there() -> None:
    """Each host says what hardware it has; the service passes on what is new."""
    found = history(
        [
            Params(1, 1.0, {"hardware": {"a": {"cpus": 8}}, "lr": 0.1}),
            Params(2, 2.0, {"hardware": {"b": {"cpus": 4}, "a": {"gpu0": {"model": "H100"}}}}),
            Params(3, 3.0, {"lr": {"start": 0.2}}),
        ]
    )

    assert found.params == {
        "hardware": {"a": {"cpus": 8, "gpu0": {"model": "H100"}}, "b": {"cpus": 4}},
        "lr": {"start": 0.2},
    }
