"""What a worker waits for once everything is acknowledged, and what it says at its end: of a service that is busy."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.integration.worker_process import environment, run
from tests.otlp_server import otlp_server

PROGRAM = """
    import otel_ml

    with otel_ml.init("exp", id="one"):
        otel_ml.log({"x": 1.0}, step=0)
"""

ON_THE_WAY = "ended. Rank 0 recorded 1 value, acknowledged, on their way to http"


class Account(dict[str, Any]):
    """What a busy service says of the run, one answer after the other; the last one from then on."""

    def __init__(self, *said: dict[str, Any] | None) -> None:
        super().__init__()
        self.said = list(said)

    def get(self, path: str, default: Any = None) -> Any:
        assert path == "/otel_ml/runs/one"
        return self.said.pop(0) if len(self.said) > 1 else self.said[0]


class Draining(Account):
    """What a service says that needs so many seconds for what is pending, however often it is asked meanwhile."""

    def __init__(self, seconds: float, end: dict[str, Any]) -> None:
        super().__init__(end)
        self.seconds = seconds
        self.first_asked: float | None = None

    def get(self, path: str, default: Any = None) -> Any:
        now = time.monotonic()
        self.first_asked = self.first_asked or now
        left = self.first_asked + self.seconds - now
        return busy(1 + int(left * 1000)) if left > 0 else super().get(path)


def said_at_the_end(folder: Path, account: Account) -> str:
    with otlp_server() as server:
        server.headers = {"otel-ml-notices": "0"}  # it is a service of ours
        server.pages = account
        _, errors = run(PROGRAM, environment(folder, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url}), folder)
    return errors


def busy(pending: int) -> dict[str, Any]:
    return {"pending": pending, "left": False, "last": False}


def test_a_service_that_gets_on_is_waited_for_until_it_has_heard_the_goodbye(tmp_path: Path) -> None:
    end = {"pending": 0, "left": True, "last": True, "writers": 1, "recorded": 1, "delivered": 1}

    said = said_at_the_end(tmp_path, Draining(2.5, end))  # longer than for one that does not get on

    assert "finished. 1 process, 1 value recorded, 1 delivered, 0 lost." in said


def test_what_an_endpoint_has_not_taken_is_recovered_with_that_endpoint_set(tmp_path: Path) -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_ML_EXIT_WAIT": "200"}

    _, errors = run(PROGRAM, environment(tmp_path, endpoint), tmp_path)

    assert "with OTEL_EXPORTER_OTLP_ENDPOINT set as it was: otel-ml recover one " in errors


def test_where_to_look_is_said_of_the_host_of_the_service_where_that_is_not_the_jobs_own(tmp_path: Path) -> None:
    end = {"pending": 0, "left": True, "last": True, "writers": 1, "dir": "/srv/runs/exp/one"}
    exporters = {"jsonl": {"delivered_seq": 1}}

    said = said_at_the_end(tmp_path, Account(end | {"exporters": exporters}))

    assert "Look where the service runs: otel-ml ui --dir /srv/runs\n" in said


def test_what_was_said_while_the_end_was_waited_for_is_printed_once(tmp_path: Path) -> None:
    notices = ["Rank 1 is slow.", "Rank 2 is slow."]
    end = {"pending": 0, "left": True, "last": True, "writers": 1, "recorded": 1, "delivered": 1, "notices": notices}

    said = said_at_the_end(
        tmp_path,
        Account(
            busy(3) | {"notices": notices[:1], "told": None},
            busy(2) | {"notices": notices, "told": 1},
            end | {"told": 2},
        ),
    )

    assert [said.count(notice) for notice in notices] == [1, 1]


def test_that_nothing_is_pending_does_not_mean_that_the_goodbye_was_heard(tmp_path: Path) -> None:
    end = {"pending": 0, "left": True, "last": True, "writers": 1, "recorded": 1, "delivered": 1}

    said = said_at_the_end(tmp_path, Account(busy(0), None, busy(0), end))

    assert "finished. 1 process, 1 value recorded, 1 delivered, 0 lost." in said


def test_who_leaves_while_others_are_live_does_not_wait_for_them_and_says_nothing_of_the_run(tmp_path: Path) -> None:
    said = said_at_the_end(tmp_path, Account({"pending": 9, "left": True, "last": False}))

    assert "finished" not in said


def test_where_a_busy_service_does_not_say_in_time_how_the_run_went_rank_0_says_that_it_is_on_the_way(
    tmp_path: Path,
) -> None:
    assert ON_THE_WAY in said_at_the_end(tmp_path, Account(busy(3)))
    assert ON_THE_WAY in said_at_the_end(tmp_path, Account(None))
