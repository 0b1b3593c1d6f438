from __future__ import annotations

import threading

import pytest

from otel_ml_service.telemetry import MAX_LABELS, Telemetry


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


def test_what_is_counted_and_what_is_looked_up_is_said_in_the_order_of_the_catalogue() -> None:
    telemetry = Telemetry()
    telemetry.count("dropped", 3, reason="late")
    telemetry.count("dropped", reason="disk")
    telemetry.count("requests", signal="metrics")
    telemetry.count("requests", signal="metrics")

    said = telemetry.prometheus([("overhead_s", (), 0.25), ("lag", (("exporter", "b"),), 7.0)])

    assert [line for line in said.splitlines() if not line.startswith("# HELP")] == [
        "# TYPE otel_ml_requests_total counter",
        'otel_ml_requests_total{signal="metrics"} 2',
        "# TYPE otel_ml_dropped_total counter",
        'otel_ml_dropped_total{reason="disk"} 1',
        'otel_ml_dropped_total{reason="late"} 3',
        "# TYPE otel_ml_lag gauge",
        'otel_ml_lag{exporter="b"} 7',
        "# TYPE otel_ml_overhead_seconds gauge",
        "otel_ml_overhead_seconds 0.25",
    ]
    assert said.endswith("0.25\n")
    assert telemetry.value("dropped", reason="late") == 3
    assert telemetry.value("dropped", reason="never") == 0
    with pytest.raises(KeyError, match="catalogue"):
        telemetry.prometheus([("lagg", (), 1.0)])
    with pytest.raises(KeyError, match="catalogue"):
        telemetry.value("lagg")


def test_the_label_beyond_the_bound_of_a_counter_is_another_and_those_of_others_are_not() -> None:
    telemetry = Telemetry()
    for number in range(MAX_LABELS + 1):
        telemetry.count("rejected", reason=str(number))
    telemetry.count("rejected", 2, reason="0")
    telemetry.count("refused", reason="new")

    assert telemetry.value("rejected", reason="0") == 3
    assert telemetry.value("rejected", reason=str(MAX_LABELS - 1)) == 1
    assert telemetry.value("rejected", reason=str(MAX_LABELS)) == 0
    assert telemetry.value("rejected", reason="other") == 1
    assert telemetry.value("refused", reason="new") == 1
