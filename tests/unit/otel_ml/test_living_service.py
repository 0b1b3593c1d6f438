"""A service that lives and cannot answer, as while a library holds its interpreter: no second one is started beside it.

It lives as long as it holds the lock of its announcement, which here the test does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from otel_ml._internal.lifecycle import shutdown
from otel_ml._internal.lifecycle.shutdown import TIMEOUT_WITH_DELIVERY, TIMEOUT_WITH_STARTS, ShutdownSequence
from otel_ml._internal.transport.embedded import EmbeddedLink
from otel_ml.config import Config
from otel_ml.wire.rendezvous import Service, rendezvous_of
from tests.full_disk import no_file_larger_than
from tests.hooks import before
from tests.otlp_server import OtlpServer, eventually, otlp_server


class Living:
    """A service that was reached.

    Attributes:
        said: the slugs of what the link has said.
    """

    def __init__(self, link: EmbeddedLink, server: OtlpServer, life: int, said: list[str]) -> None:
        self.link = link
        self.server = server
        self.said = said
        self._life = life

    def die(self) -> None:
        os.close(self._life)


@pytest.fixture(autouse=True)
def meeting_places_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no service of another test, or of other tests on this host, that serves a run of the same id."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def living(tmp_path: Path) -> Iterator[Living]:
    place = rendezvous_of("one")
    place.create()
    with otlp_server() as server:
        server.pages = {"/healthz": {}}
        life = place.publish(Service(server.url, "secret", 1, str(tmp_path)))
        said: list[str] = []
        link = EmbeddedLink(Config(dir=tmp_path / "runs"), "one", say=lambda slug, sentence: said.append(slug))
        assert link.reach(0.0, failing_s=0.0) is not None
        yield Living(link, server, life, said)


def test_no_second_service_is_started_beside_one_that_lives_however_often_it_is_silent(
    living: Living, tmp_path: Path
) -> None:
    living.server.pages = {}

    for begins in (100.0, 300.0, 900.0):  # each time it answers again, and is not reached anew: it is the same one
        for silent_s in (1.0, 30.0, 59.0):
            assert living.link.reach(begins + silent_s, failing_s=silent_s) is None

    assert not living.link.is_starting
    assert not (tmp_path / "runs").exists()


def test_no_second_service_is_started_beside_one_that_was_announced_between_two_looks_and_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    place = rendezvous_of("one")
    (tmp_path / "runs").write_text("a file where the folder of runs has to be: a start that is tried fails")
    said: list[str] = []
    link = EmbeddedLink(Config(dir=tmp_path / "runs"), "one", say=lambda slug, sentence: said.append(slug))
    lives: list[int] = []

    with otlp_server() as server:  # which does not answer who asks whether it lives

        def announce() -> None:
            lives.append(place.publish(Service(server.url, "secret", 1, str(tmp_path))))

        with before("fcntl.flock", lambda *_: True, announce):  # another process starts it, and has let go of the lock
            assert link.reach(0.0, failing_s=0.0) is None
        for silent_s in (0.1, 30.0, 59.0):
            assert link.reach(silent_s, failing_s=0.0) is None

    link.close()
    os.close(lives.pop())
    assert said == []


def test_one_that_has_ended_without_a_word_has_a_successor_soon(living: Living, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where the folder of runs has to be: the start is tried, and fails")
    living.server.pages = {}
    living.die()

    living.link.reach(101.0, failing_s=1.0)

    assert living.said == ["service-not-started"]


@pytest.mark.parametrize("is_starting", [False, True], ids=["nobody starts another", "another is started beside it"])
def test_the_end_of_a_job_waits_a_minute_at_most_for_a_service_that_lives_and_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, is_starting: bool
) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(shutdown, "time", SimpleNamespace(monotonic=lambda: clock.now))
    link = SimpleNamespace(is_starting=is_starting, is_served=True)

    assert waited(clock, link) == TIMEOUT_WITH_STARTS


@pytest.mark.parametrize(("rank", "times"), [(0, 1), (1, 0)])
def test_a_job_says_once_that_it_waits_for_a_service_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, rank: int, times: int
) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(shutdown, "time", SimpleNamespace(monotonic=lambda: clock.now))
    lines: list[str] = []

    waited(clock, SimpleNamespace(is_starting=False, is_served=True), rank=rank, lines=lines)

    assert [line.split(",")[0] for line in lines] == ["waiting for the service"] * times


def test_the_end_of_a_job_does_not_wait_so_long_for_one_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(shutdown, "time", SimpleNamespace(monotonic=lambda: clock.now))

    assert waited(clock, SimpleNamespace(is_starting=False, is_served=False)) == TIMEOUT_WITH_DELIVERY


def waited(clock: Any, link: Any, *, rank: int = 0, lines: list[str] | None = None) -> float:
    """Return the seconds until which a job waits whose service ends with it, and acknowledges nothing.

    Args:
        lines: gets what the process says meanwhile.
    """
    sender: Any = SimpleNamespace(answers=0)
    console = SimpleNamespace(line=([] if lines is None else lines).append)
    printer: Any = SimpleNamespace(notices=None, exporter_lines=None, console=console, ask=None)
    recorder: Any = None
    identity: Any = SimpleNamespace(speaks=rank == 0)
    until = ShutdownSequence(recorder, sender, link, printer, is_last_chance=True, variable="").timeout(identity)
    began = clock.now
    while clock.now < until():
        clock.now += 0.5
        assert clock.now < began + 600, "without end"
    return float(clock.now - began)


def test_a_service_that_does_not_start_for_days_is_tried_again_twice_a_minute(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file, where folders of runs are to be made")
    said: list[str] = []
    link = EmbeddedLink(Config(dir=tmp_path / "runs"), "one", say=lambda slug, sentence: said.append(slug))

    for look in range(4_000):
        link.reach(10.0 * look, failing_s=0.0)
    link.close()

    assert 1_300 < len(said) < 1_400


def test_a_service_that_could_not_say_why_it_ended_did_not_because_nothing_can_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "default" / "one"
    folder.mkdir(parents=True)
    (folder / "service.log").write_text("what it said before\n" * 1_000)
    said: list[str] = []
    link = EmbeddedLink(Config(dir=tmp_path / "runs"), "one", say=lambda slug, sentence: said.append(sentence))

    def has_said() -> bool:
        link.reach(0.0, failing_s=0.0)
        return bool(said)

    with no_file_larger_than(20_000):
        eventually(has_said, within=60)
    link.close()

    assert re.match(r"The service did not start \(exit code \d+: File too large: ", said[0]), said
    assert "or choose another one with OTEL_ML_DIR" in said[0]
    assert "Look into" not in said[0]
