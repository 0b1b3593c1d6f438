"""docs/protocol.md §4.11: points of any OpenTelemetry SDK, the Collector's receivers, and records without a step."""

from __future__ import annotations

import math
from typing import Any

import pytest

from otel_ml_service.aggregation.observation import Observation, ThirdPartyPoints
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.receiver.decode import Decoder
from tests.otlp import third_party_request
from tests.strategies import START, Rank, Service, cumulative, writer

SDK = writer(0, instance="sdk")
SCRAPER = writer(0, role="vllm", instance="scraper")


def test_a_counter_becomes_its_rate_in_each_window() -> None:
    service, trainer = Service(), Rank(0)
    service.take(trainer.step(0, {"x": 1.0}))

    for second, total in ((1, 5.0), (10, 7.0), (20, 12.0)):
        service.now = START + second
        service.take([cumulative(SCRAPER, "tokens", total, start=START, time=START + second)])
    service.wait(40, trainer)

    assert service.rows(axis="time", role="vllm") == {
        0: {"vllm/tokens/rate": 0.5},
        10: {"vllm/tokens/rate": 0.2},
        20: {"vllm/tokens/rate": 0.5},
    }


def test_a_stream_that_began_before_the_run_is_a_baseline_only() -> None:
    service = Service()
    service.take(Rank(0).step(0, {"x": 1.0}))

    service.take([cumulative(SCRAPER, "tokens", 1e9, start=START - 86400, time=START + 1)])
    service.take([cumulative(SCRAPER, "tokens", 1e9 + 3, start=START - 86400, time=START + 2)])
    service.wait(40, Rank(9))

    assert service.rows(axis="time", role="vllm") == {0: {"vllm/tokens/rate": 0.3}}
    assert service.engine.status.counts.ignored == 1


def test_a_new_start_or_a_lower_value_restarts_from_zero_and_an_older_time_is_ignored() -> None:
    service = Service()
    service.take(Rank(0).step(0, {"x": 1.0}))

    service.take(
        [
            cumulative(SCRAPER, "tokens", 5.0, start=START, time=START + 1),
            cumulative(SCRAPER, "tokens", 2.0, start=START, time=START + 2),
            cumulative(SCRAPER, "tokens", 4.0, start=START + 3, time=START + 4),
            cumulative(SCRAPER, "tokens", 99.0, start=START, time=START + 3),
        ]
    )
    service.wait(40, Rank(9))

    assert service.rows(axis="time", role="vllm") == {0: {"vllm/tokens/rate": 1.1}}


def test_the_same_point_again_changes_nothing() -> None:
    service = Service()
    point = cumulative(SCRAPER, "load", 3.0, start=0, time=START, kind="gauge", temporality="none")

    service.take([point, point])
    service.restart()
    service.take([point])
    service.wait(40, Rank(9))

    assert service.rows(axis="time", role="vllm") == {0: {"vllm/load": 3.0}}
    assert service.engine.status.counts.duplicate == 2


def test_the_training_step_current_then_is_beside_a_window() -> None:
    service, rank = Service(), Rank(0)
    service.take(rank.inside(7))
    service.now = rank.clock = START + 5
    service.take(rank.inside(8))

    service.take([cumulative(SCRAPER, "load", 3.0, start=0, time=START + 4, kind="gauge", temporality="none")])
    service.wait(40, Rank(9))

    assert service.rows(axis="time", role="vllm", own=True) == {0: {"vllm/load": 3.0, "vllm/otel_ml/step": 7.0}}


def test_a_plain_sdk_program_with_steps_closes_a_step_at_its_first_point_of_a_later_one() -> None:
    service = Service()

    for step in range(4):
        service.take([cumulative(SDK, "loss", 0.5, start=START, time=START + step, step=step, reduction="mean")])

    assert service.rows() == {step: {"loss": 0.5} for step in range(3)}
    service.wait(12, Rank(9))
    assert 3 in service.rows()


def test_a_time_in_the_future_becomes_the_receive_time() -> None:
    service = Service()
    service.take(Rank(0).step(0, {"x": 1.0}))

    service.take([cumulative(SCRAPER, "load", 1.0, start=0, time=START + 9e6, kind="gauge", temporality="none")])
    service.wait(40, Rank(9))

    assert list(service.rows(axis="time", role="vllm")) == [0]


@pytest.mark.parametrize("wrong", ["time", "start", "no time"])
def test_the_axis_time_begins_when_its_first_point_is_received_where_that_tells_no_time_that_can_be(wrong: str) -> None:
    service = Service()
    ahead = START + 3600
    first = {
        "time": cumulative(SCRAPER, "load", 1.0, start=0, time=ahead, kind="gauge", temporality="none"),
        "start": cumulative(SCRAPER, "tokens", 1.0, start=ahead, time=START),
        "no time": cumulative(SCRAPER, "load", 1.0, start=0, time=0, kind="gauge", temporality="none"),
    }
    service.take([first[wrong]])

    for value in range(1, 6):
        service.wait(10)
        service.take([cumulative(SCRAPER, "heat", value, start=0, time=service.now, kind="gauge", temporality="none")])
    service.wait(400)

    rows = service.rows(axis="time", role="vllm")
    assert {second: row["vllm/heat"] for second, row in rows.items() if "vllm/heat" in row} == {
        10 * value: float(value) for value in range(1, 6)
    }
    assert "vllm/load" in rows.get(0, {}) or wrong == "start"


def test_the_step_beside_a_window_is_that_of_right_clocks_where_one_host_is_ahead() -> None:
    service, ranks = Service(), [Rank(rank, world_size=2) for rank in range(2)]

    for step in range(4):
        for rank, ahead in zip(ranks, (3600, 0), strict=True):
            rank.clock = service.now + ahead
        service.take(*[rank.step(step, {"loss": 1.0}) for rank in ranks], *[rank.inside(step) for rank in ranks])
        service.take([cumulative(SCRAPER, "load", step, start=0, time=service.now, kind="gauge", temporality="none")])
        service.wait(20, *ranks)

    rows = service.rows(axis="time", role="vllm", own=True).values()
    assert [(row["vllm/load"], row.get("vllm/otel_ml/step")) for row in rows] == [(step, step) for step in range(4)]


def test_an_up_down_counter_is_a_level() -> None:
    service = Service()

    for second, level in ((1, 4.0), (2, 3.0)):
        point = cumulative(SCRAPER, "queue", level, start=START, time=START + second, monotonic=False)
        service.take([point])
    service.wait(40, Rank(9))

    assert service.rows(axis="time", role="vllm") == {0: {"vllm/queue": 3.0}}


def test_a_receiver_that_sees_a_stream_for_the_first_time_says_nothing_of_its_past() -> None:
    service = Service()
    service.take(Rank(0).step(0, {"x": 1.0}))

    service.take([cumulative(SCRAPER, "tokens", 1e9, start=START + 1, time=START + 1)])
    service.take([cumulative(SCRAPER, "tokens", 1e9 + 4, start=START + 1, time=START + 2)])
    service.wait(40, Rank(9))

    assert service.rows(axis="time", role="vllm") == {0: {"vllm/tokens/rate": 0.4}}


def test_a_receiver_that_is_started_again_says_nothing_of_the_past_of_a_stream_either() -> None:
    service = Service()
    service.take(Rank(0).step(0, {"x": 1.0}))

    for start, time, total in ((1, 1, 0.0), (1, 2, 2.0), (4, 4, 5.0), (4, 5, 6.0)):
        service.take([cumulative(SCRAPER, "tokens", 1e9 + total, start=START + start, time=START + time)])
    service.wait(40, Rank(9))

    assert service.rows(axis="time", role="vllm") == {0: {"vllm/tokens/rate": 0.6}}


def test_series_beyond_the_budget_are_left_out_counted_and_said_once() -> None:
    service = Service(EngineSettings(scraped_series=3, scraped_deny=("scrape_*", "noise*")))
    service.take(Rank(0).step(0, {"x": 1.0}))

    names = ["noise1", "scrape_samples", "a", "b", "c", "d", "e"]
    for second in (1, 2):
        service.take([gauge(name, START + second) for name in names])
    service.wait(40, Rank(9))

    shown = service.rows(axis="time", role="vllm", own=True)[0]
    assert {name for name in shown if "otel_ml" not in name} == {"vllm/a", "vllm/b", "vllm/c"}
    assert shown["vllm/otel_ml/overflow"] == 4
    assert len([notice for notice in service.notices if "More than 3 series" in notice]) == 1


def gauge(name: str, time: float) -> ThirdPartyPoints:
    return cumulative(SCRAPER, name, 3.0, start=0, time=time, kind="gauge", temporality="none")


def test_what_training_calls_the_run_counts_not_what_a_scraper_was_stamped_with() -> None:
    service = Service()
    scraper = writer(0, role="agent", instance="node-0", experiment_name="stamped")

    service.take([cumulative(scraper, "load", 1.0, start=0, time=START, kind="gauge", temporality="none")])
    assert service.engine.facts.experiment_name == "stamped"
    service.take(Rank(0, experiment_name="digits").step(0, {"x": 1.0}))

    assert service.engine.facts.experiment_name == "digits"


def test_what_engines_publish_after_the_job_has_ended_is_not_part_of_the_run_until_it_goes_on() -> None:
    service, rank = Service(), Rank(0)
    service.take(rank.step(0, {"x": 1.0}), rank.bye())
    service.wait(5)
    assert service.engine.status.state == "finished"

    service.take([cumulative(SCRAPER, "load", 1.0, start=0, time=service.now, kind="gauge", temporality="none")])
    service.wait(60)

    assert service.engine.status.state == "finished"
    assert service.engine.status.open_steps == 0
    assert service.engine.status.counts.ignored == 1

    again = Rank(0, instance="again", clock=service.now)
    service.take(again.step(1, {"x": 1.0}))
    service.take([cumulative(SCRAPER, "load", 2.0, start=0, time=service.now, kind="gauge", temporality="none")])
    service.wait(40, again)

    assert list(service.rows(axis="time", role="vllm").values()) == [{"vllm/load": 2.0}]


def test_a_point_that_comes_again_is_known_whatever_comes_with_it() -> None:
    def sent(*names: str) -> list[Observation]:
        points = [{"name": name, "value": 1.0, "ml.step": 3, "ml.reduction": "sum"} for name in names]
        (found,) = Decoder().protobuf("metrics", third_party_request(points).SerializeToString()).observations.values()
        return found

    service = Service()

    service.take(sent("a", "b"), sent("b", "c"), sent("c"), sent("c", "a"))
    service.wait(400)

    assert service.rows(role="") == {3: {"a": 1.0, "b": 1.0, "c": 1.0}}
    assert service.engine.status.counts.duplicate == 4


@pytest.mark.parametrize(
    ("kind", "temporality", "monotonic"),
    [("gauge", "none", None), ("sum", "cumulative", True), ("sum", "cumulative", False)],
)
def test_a_nan_that_is_sent_again_of_closed_steps_is_no_news(
    kind: str, temporality: str, monotonic: bool | None
) -> None:
    service = Service(EngineSettings(retained_steps=2))
    how: dict[str, Any] = {"kind": kind, "temporality": temporality, "monotonic": monotonic, "reduction": "max"}

    for now in range(6):
        for step in range(now + 1):
            service.take([cumulative(SDK, "loss", math.nan, start=START, time=START + now, step=step, **how)])
    service.wait(400)

    assert [list(map(math.isnan, row.values())) for row in service.rows().values()] == [[True]] * 6
    assert (service.amendments, service.engine.status.counts.too_late) == (0, 0)


def test_what_another_sdk_sends_for_a_step_after_the_run_has_ended_is_a_row_and_does_not_reopen_it() -> None:
    service, rank = Service(), Rank(0)
    service.take(rank.step(0, {"loss": 1.0}), rank.bye())
    service.wait(10)
    assert service.engine.status.state == "finished"

    service.take([cumulative(SCRAPER, "tokens", 5.0, start=service.now, time=service.now, step=3)])

    assert service.rows(role=SCRAPER.role)[3] == {f"{SCRAPER.role}/tokens": 5.0}
    assert service.engine.status.counts.open == 0
    assert service.engine.status.state == "finished"
    assert service.engine.next_deadline() is None
