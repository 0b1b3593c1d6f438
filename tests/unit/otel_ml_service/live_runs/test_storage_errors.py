from __future__ import annotations

import logging

import pytest

from otel_ml_service.live_runs import storage_errors
from otel_ml_service.live_runs.storage_errors import StorageErrors


def test_what_cannot_be_stored_is_said_once_until_it_changes_and_how_long_it_lasted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [100.0]
    monkeypatch.setattr(storage_errors.time, "monotonic", lambda: now[0])
    trouble = StorageErrors("Run exp")
    with caplog.at_level(logging.WARNING):
        assert trouble.over() is None
        trouble.note(OSError("The disk is full."))
        now[0] = 130.0
        trouble.note(OSError("The disk is full."))
        trouble.note(OSError("The disk is read-only."))
        text = trouble.text
        now[0] = 140.0
        told = trouble.over()

    assert text == "The disk is read-only."
    assert told == "For 40 s nothing could be stored: The disk is read-only. What was acknowledged is all there."
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == [
        "Run exp cannot be stored: The disk is full.",
        "Run exp cannot be stored: The disk is read-only.",
        "Run exp can be stored again, after 40 s.",
    ]
    assert (trouble.text, trouble.over()) == ("", None)


def test_the_next_time_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(storage_errors.time, "monotonic", lambda: now[0])
    trouble = StorageErrors("Run exp")
    trouble.note(OSError("The disk is full."))
    trouble.over()
    now[0] = 200.0
    trouble.note(OSError("The disk is full."))
    now[0] = 205.0

    assert trouble.over() == "For 5 s nothing could be stored: The disk is full. What was acknowledged is all there."
