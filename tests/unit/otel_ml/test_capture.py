"""What a run was started from belongs to that run, however long git takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_ml._internal.capture import Capture
from otel_ml._internal.events import EVENTS


def test_what_is_found_after_the_run_has_ended_is_not_put_into_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_git = tmp_path / "git"
    slow_git.write_text("#!/bin/sh\nsleep 0.3\nexit 1\n")
    slow_git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    EVENTS.forget()

    capture = Capture("trainer")
    capture.start()
    capture.end(0.0)
    capture.end(30.0)

    assert list(EVENTS.take()) == []
