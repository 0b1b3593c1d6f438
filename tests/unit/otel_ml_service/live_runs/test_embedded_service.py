"""From when on a job's own service is found, and until when."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_ml.wire.rendezvous import Rendezvous, Service
from otel_ml_service.live_runs.embedded_service import EmbeddedService
from otel_ml_service.live_runs.run_registry import RunRegistry
from otel_ml_service.live_runs.run_settings import RunSettings
from otel_ml_service.receiver.admission import Admission, Stored
from otel_ml_service.receiver.decode import Decoded
from otel_ml_service.telemetry import Telemetry
from tests.otlp import FakeWriter, write_spool
from tests.waiting import eventually


@pytest.fixture
def rendezvous(tmp_path: Path) -> Rendezvous:
    found = Rendezvous(tmp_path / "otel-ml" / "run")
    found.create()
    return found


def service_at(port: int, tmp_path: Path) -> Service:
    return Service(f"http://127.0.0.1:{port}", "token", os.getpid(), str(tmp_path / "run"))


def life(rendezvous: Rendezvous, tmp_path: Path, store: Callable[[Decoded, Stored], None]) -> EmbeddedService:
    telemetry = Telemetry()
    runs = RunRegistry(tmp_path / "runs", RunSettings({}), telemetry, journal="j")
    admission = Admission(store, telemetry, 2**28)
    return EmbeddedService(rendezvous, runs, admission, over=lambda: None)


def test_a_service_that_ends_while_it_takes_in_what_the_dead_left_is_not_found_after_it(
    rendezvous: Rendezvous, tmp_path: Path
) -> None:
    write_spool(rendezvous.spool / "dead-000000.spool", FakeWriter(instance="dead"), range(2))
    rendezvous.service_file.write_text("{}")  # of the service before it, which was killed
    on_their_way: list[tuple[Decoded, Stored]] = []
    ending = life(rendezvous, tmp_path, lambda decoded, stored: on_their_way.append((decoded, stored)))
    ending.announce(service_at(1, tmp_path))
    eventually(lambda: on_their_way)

    withdraws = threading.Thread(target=ending.withdraw)
    withdraws.start()
    eventually(lambda: not rendezvous.service_file.exists())
    for decoded, stored in on_their_way:
        stored(decoded, None)
    withdraws.join()

    assert rendezvous.read_service() is None
    ending.leave()
    assert not rendezvous.folder.exists()


def test_a_service_that_ends_leaves_the_one_that_was_announced_after_it(rendezvous: Rendezvous, tmp_path: Path) -> None:
    ending = life(rendezvous, tmp_path, lambda decoded, stored: stored(decoded, None))
    ending.announce(service_at(1, tmp_path))
    successor = rendezvous.publish(service_at(2, tmp_path))

    ending.withdraw()
    ending.leave()

    assert rendezvous.read_service() == service_at(2, tmp_path)
    assert rendezvous.is_served()
    os.close(successor)
