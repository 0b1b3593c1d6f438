"""What is said of a run after it has begun travels with what is sent from then on, whenever it is said."""

from __future__ import annotations

import pytest

import otel_ml
from otel_ml._internal.lifecycle.isolation import isolated
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.transport.answer import Answer
from otel_ml._internal.transport.link import Reached


class Elsewhere:
    """A receiver that knows the run by another id, and the way to it; a topology is told while it is looked for."""

    is_starting = is_served = serves_here = False

    def reach(self, now: float, *, failing_s: float) -> Reached:
        del now, failing_s
        otel_ml.init("exp", topology={"dp": (0, 2)})
        return Reached(self, "elsewhere", run_id="its-own")

    def post(self, path: str, body: bytes, timeout: float) -> Answer:
        del path, body, timeout
        return Answer("ok")

    def get(self, path: str, timeout: float) -> None:
        """It has no account of the run."""

    def close(self) -> None:
        """Nothing is held."""

    def forget(self) -> None:
        """Nothing is shared."""


def test_a_topology_that_is_told_while_the_receiver_is_found_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RUNTIME, "make_link", lambda *_: Elsewhere())
    with isolated():
        otel_ml.init("exp")
        session = RUNTIME.current
        assert session is not None
        worker = session.worker
        assert worker is not None
        otel_ml.flush(10)
        otel_ml.flush(10)  # told in the middle of the round of the first, perhaps
        resource = worker.sender.resource
        otel_ml.shutdown(5)

    assert b"its-own" in resource
    assert b"ml.topology.dp" in resource
