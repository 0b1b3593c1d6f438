"""What the `trackio` exporter does to names; what it stores is in `tests/contract`."""

from __future__ import annotations

import pytest

from otel_ml_exporters.backends.trackio.rows import step_row
from otel_ml_exporters.backends.trackio.storage import project_name
from tests.contract.stream import step


@pytest.mark.parametrize("taken", ["my.model", "registry-x", "model_system", "ünï", ""])
def test_a_name_that_would_be_another_projects_file_is_replaced(taken: str) -> None:
    from trackio.sqlite_storage import SQLiteStorage
    from trackio.utils import canonical_project_name

    name = project_name(taken)

    SQLiteStorage.validate_project_name(name)
    assert canonical_project_name(name) == name
    assert project_name(taken) == name != project_name(taken + "x")


def test_names_that_trackio_writes_over_are_kept_apart() -> None:
    row = step_row(step(1, 5, {"step": 1.0, "time": 2.0, "loss": 3.0}))

    assert row.values == {"metric/step": 1.0, "metric/time": 2.0, "loss": 3.0}
