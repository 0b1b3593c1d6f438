"""What the Inspector writes into files of a device that fails or hangs: what did not come is said."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

import pytest

from otel_ml.diagnostics.inspection.dump import Dump
from otel_ml.diagnostics.inspection.host_copy import copied
from otel_ml.diagnostics.inspection.text_log import TextLog
from otel_ml.diagnostics.inspection.writer_end import ended
from otel_ml.testing import Capture, otel_ml_capture
from tests.fake_cuda import FakeCuda

__all__ = ["otel_ml_capture"]


def names_in(log: TextLog) -> list[str]:
    return [line.split()[5] for line in log.path.read_text().splitlines()]


def test_a_value_of_a_device_that_fails_costs_its_line_alone(
    otel_ml_capture: Capture, cuda: FakeCuda, tmp_path: Path
) -> None:
    log = TextLog(tmp_path, 0)
    cuda.stream.hold()
    for step in range(3):
        log.line(f"{step}_of_the_device", step, cuda.tensor(1.0))
    cuda.broken = RuntimeError("CUDA error: device-side assert triggered")
    log.line("of_the_host", 0, 2.0)
    log.close()
    cuda.broken = None

    assert names_in(log) == ["of_the_host"]
    (notice,) = otel_ml_capture.notices
    assert "0_of_the_device" in notice
    assert "device-side assert" in notice


def test_a_log_that_ends_while_its_device_hangs_says_so(
    otel_ml_capture: Capture, cuda: FakeCuda, tmp_path: Path
) -> None:
    log = TextLog(tmp_path, 0)
    cuda.stream.hold()
    log.line("of_the_device", 0, cuda.tensor(1.0))
    log.close(timeout=0)
    cuda.stream.release()
    log.close()

    (notice,) = otel_ml_capture.notices
    assert str(log.path) in notice


def test_a_thread_that_takes_nothing_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    thread = threading.Thread(target=released.wait, daemon=True)
    thread.start()
    waiting = queue.Queue[object](1)
    waiting.put("a line")
    joined = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "join", lambda _, timeout: joined.append(timeout))
        is_over = ended(thread, waiting, 0.1)
    released.set()
    thread.join()

    assert not is_over
    assert joined == [0.0]


def test_tensors_that_do_not_come_are_said_at_the_end(otel_ml_capture: Capture, cuda: FakeCuda, tmp_path: Path) -> None:
    saved = Dump(tmp_path, 0)
    cuda.stream.hold()
    saved.save("layer", "weight", 0, [copied(cuda.tensor([1.0, 2.0]))])
    saved.close(timeout=0)
    cuda.broken = RuntimeError("CUDA error: device-side assert triggered")
    saved.close()
    cuda.broken = None

    assert "its last tensors may be missing" in otel_ml_capture.notices[0]
