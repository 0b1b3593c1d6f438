"""When the demo's job is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_ml_service.demo.launch import Launch, wait_for_service
from otel_ml_service.storage.outbox import Outbox
from tests.recorded_run import digits_records, write_run


def test_a_run_is_waited_for_though_its_service_is_found_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # where nobody has announced a service
    run = write_run(tmp_path, "01abc", digits_records(steps=5))
    held = [Outbox(run.database)]
    looks = []

    def on_progress() -> None:
        looks.append(bool(held))
        if len(looks) == 3:
            held.pop().close()

    wait_for_service(Launch(run, (), 5, on_progress=on_progress, on_event=print))

    assert looks == [True, True, True]
