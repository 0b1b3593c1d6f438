from __future__ import annotations

import threading

import pytest

from otel_ml_service.telemetry import Telemetry


def test_no_count_is_lost_between_threads() -> None:
    telemetry = Telemetry()

    def count() -> None:
        for _ in range(5000):
            telemetry.count("requests", signal="metrics")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert telemetry.value("requests", signal="metrics") == 20_000


def test_labels_are_escaped_as_prometheus_reads_them() -> None:
    telemetry = Telemetry()

    telemetry.count("rejected", reason='a "quote", a \\ and\na line')

    assert 'reason="a \\"quote\\", a \\\\ and\\na line"} 1' in telemetry.prometheus()


def test_a_name_that_is_not_in_the_catalogue_is_an_error() -> None:
    with pytest.raises(KeyError, match="catalogue"):
        Telemetry().count("requsts")
