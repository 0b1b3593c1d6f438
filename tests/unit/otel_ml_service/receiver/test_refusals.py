from __future__ import annotations

import logging

import pytest

from otel_ml_service.receiver.refusal_log import WRONG_TOKEN, RefusalLog


def test_a_sender_that_comes_back_is_written_down_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    refusals = RefusalLog(iter([0.0, 1.0, 59.0, 61.0, 61.0]).__next__)

    with caplog.at_level(logging.WARNING):
        for host in ("10.0.0.3", "10.0.0.3", "10.0.0.3", "10.0.0.3", "10.0.0.4"):
            refusals.tell(host, WRONG_TOKEN)

    assert caplog.messages == [
        f"Refused {host}: its bearer token is missing or wrong. Set OTEL_ML_TOKEN there to the service's."
        for host in ("10.0.0.3", "10.0.0.3", "10.0.0.4")
    ]
