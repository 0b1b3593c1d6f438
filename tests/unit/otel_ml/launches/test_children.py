"""What a run tells the processes that its process has made before."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator

import pytest

import otel_ml
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml.testing import capture
from otel_ml.wire.rendezvous import rendezvous_of


@pytest.fixture
def child() -> Iterator[None]:
    made = multiprocessing.get_context("fork").Process(target=signal.pause, daemon=True)
    made.start()
    yield
    made.kill()
    made.join()


def test_a_run_ends_where_what_it_has_told_cannot_be_taken_back(child: None) -> None:
    with capture() as run:
        [told] = rendezvous_of("").folder.parent.glob("*.children.launch.json")
        told.unlink()
        told.mkdir()  # cannot be unlinked, as in a file system that is read-only by now
        otel_ml.log({"loss": 1.0}, step=0)

        assert otel_ml.shutdown(20.0)
        assert not RUNTIME.is_active
    assert [point.value for point in run.points] == [1.0]
    told.rmdir()
