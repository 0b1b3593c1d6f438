"""docs/protocol.md §5.10: who is ended by a kill, by who started it, is not called killed."""

from __future__ import annotations

import pytest

from otel_ml.wire.attributes import EVENT_STARTED_END
from otel_ml_exporters.records import Text
from tests.strategies import Observation, Rank, Service

DRIVER = "driver-0"


def job(**facts: object) -> tuple[Service, Rank, list[Rank]]:
    """Return a driver, and two of its workers, of which only the first has done the last step."""
    service, driver = Service(), Rank(0, role="driver")
    workers = [Rank(rank, role="task", starter=DRIVER, **facts) for rank in range(2)]
    service.take(driver.step(0, {"queued": 1.0}))
    for step in range(4):
        service.take(*[worker.step(step, {"x": 1.0}) for worker in workers])
        service.wait(1, driver, *workers)
    service.take(workers[0].step(4, {"x": 1.0}))
    service.wait(1, driver, *workers)
    return service, driver, workers


def ends(driver: Rank) -> list[Observation]:
    return driver.event(EVENT_STARTED_END, None)


def told(service: Service) -> list[str]:
    """What is said of who is gone."""
    texts = [one.name for one in service.records if isinstance(one, Text)]
    rows = service.rows(role="task", own=True)
    missing = [f"missing at {step}" for step, row in rows.items() if "task/otel_ml/writers_missing" in row]
    return [*texts, *missing, *[notice for notice in service.notices if "killed" in notice]]


@pytest.mark.parametrize("bye_is_first", [False, True])
def test_a_run_ends_as_its_driver_does_whose_workers_are_ended_by_a_kill(bye_is_first: bool) -> None:
    service, driver, workers = job()
    last = [ends(driver), driver.bye()]

    service.take(*last[: 1 + bye_is_first])
    service.miss(*workers)
    service.take(*last[1 + bye_is_first :])
    service.wait(20)

    assert service.engine.status.state == "finished"
    assert told(service) == []


def test_who_was_killed_before_that_is_told() -> None:
    service, driver, workers = job()

    service.miss(workers[1])
    service.wait(1, driver, workers[0])
    service.take(ends(driver), driver.bye())
    service.miss(workers[0])
    service.wait(20)

    assert service.engine.status.state == "killed"
    assert "task/otel_ml/killed/rank_1" in told(service)
    assert "task/otel_ml/killed" not in told(service)


def test_who_was_gone_before_that_was_said_is_told_though_what_it_left_came_later() -> None:
    service, driver, workers = job()

    service.leave(workers[1])
    service.wait(1, driver, workers[0])
    service.take(ends(driver), driver.bye())
    service.miss(*workers)
    service.wait(20)

    assert service.engine.status.state == "killed"


def test_what_is_said_may_take_longer_than_the_process_table() -> None:
    service, driver, workers = job()

    message = ends(driver)
    service.wait(1, workers[0])
    service.leave(*workers)
    service.wait(1)
    service.take(message, driver.bye())
    service.miss(*workers)
    service.wait(20)

    assert service.engine.status.state == "finished"


def test_who_was_silent_before_that_is_told_where_no_process_table_tells() -> None:
    service, driver, workers = job()
    service.wait(15, driver, workers[0])

    service.take(ends(driver), driver.bye())
    service.wait(400)

    assert service.engine.status.state == "killed"


def test_those_that_somebody_else_has_started_owe_a_shutdown_message() -> None:
    service, driver, workers = job()
    stranger = Rank(0, role="trainer")
    service.take(stranger.step(0, {"loss": 1.0}))

    service.take(ends(driver), driver.bye())
    service.miss(*workers, stranger)
    service.wait(20)

    assert service.engine.status.state == "killed"
    assert [one for one in told(service) if "killed" in one and "task" in one] == []


def test_who_is_heard_first_from_what_it_had_left_on_a_disk_is_one_of_them() -> None:
    service, driver, workers = job()
    service.take(ends(driver), driver.bye())
    service.miss(*workers)
    late = Rank(2, role="task", starter=DRIVER, clock=service.now)

    service.wait(1)
    service.take(late.step(0, {"x": 1.0}))
    service.miss(late)
    service.wait(20)

    assert service.engine.status.state == "finished"


def test_a_process_that_is_started_later_is_none_of_them() -> None:
    service, driver, workers = job()
    service.take(ends(driver))
    service.miss(*workers)
    service.wait(10, driver)
    later = Rank(2, role="task", starter=DRIVER, clock=service.now)
    service.take(later.step(0, {"x": 1.0}))
    service.wait(1, driver, later)

    service.miss(later)
    service.take(driver.bye())
    service.wait(20)

    assert service.engine.status.state == "killed"


def test_a_service_that_starts_again_knows_who_was_dismissed() -> None:
    service, driver, workers = job()
    service.take(ends(driver), driver.bye())

    service.restart()
    service.miss(*workers)
    service.wait(20)

    assert service.engine.status.state == "finished"


def test_of_whom_no_process_table_tells_silence_does() -> None:
    service, driver, _ = job()
    service.take(ends(driver), driver.bye())
    assert service.engine.status.state == "running"

    service.wait(400)

    assert service.engine.status.state == "finished"
