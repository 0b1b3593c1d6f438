from __future__ import annotations

import pytest

from otel_ml_service.exit_status import exit_status


@pytest.mark.parametrize(("code", "status"), [(0, 0), (1, 1), (255, 255), (-1, 129), (-9, 137), (-15, 143)])
def test_a_process_that_a_signal_ended_is_told_as_a_shell_does(code: int, status: int) -> None:
    assert exit_status(code) == status
