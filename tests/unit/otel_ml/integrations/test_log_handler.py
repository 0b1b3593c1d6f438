"""Lines of `logging` in the run."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

import otel_ml
from otel_ml._internal.events.event_queue import current_events
from otel_ml._internal.events.log_record import LogRecord
from otel_ml._internal.steps.axes import current_step
from otel_ml.integrations.log_handler import LogHandler
from otel_ml.testing import Capture, capture


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture(rank=2, world_size=3) as run:
        yield run


@pytest.fixture
def handler() -> LogHandler:
    return LogHandler()


@pytest.fixture
def logger(handler: LogHandler) -> Iterator[logging.Logger]:
    logger = logging.getLogger("train.loop")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    yield logger
    logger.removeHandler(handler)


def lines(captured: Capture) -> list[tuple[int | None, str]]:
    texts = [event for event in captured.events if event.kind == "ml.text" and event.name == "log"]
    return [(text.step, line) for text in texts for line in text.body.splitlines()]


def line(name: str, message: object) -> logging.LogRecord:
    return logging.makeLogRecord({"name": name, "levelno": logging.INFO, "levelname": "INFO", "msg": message})


@pytest.mark.feature("R19", "better", "log lines of every rank are in the run, at the step in which they were logged")
def test_a_line_is_at_the_step_in_which_it_was_logged(captured: Capture, logger: logging.Logger) -> None:
    logger.info("before any step")
    for step in (3, 4):
        otel_ml.set_step(step)
        logger.warning("loss is %s", step / 2)

    found = lines(captured)

    assert [step for step, _ in found] == [None, 3, 4]
    assert re.fullmatch(r"\d{4}-.* WARNING MainProcess train\.loop: loss is 1\.5", found[1][1])


def test_less_important_lines_are_left_out(captured: Capture, logger: logging.Logger) -> None:
    logger.debug("every batch")
    logger.error("once")

    assert [line.rpartition(": ")[2] for _, line in lines(captured)] == ["once"]


def test_a_traceback_is_part_of_its_line(captured: Capture, logger: logging.Logger) -> None:
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        logger.exception("the step failed")

    assert lines(captured)[-1][1] == "ZeroDivisionError: division by zero"


def test_our_own_lines_are_left_out(captured: Capture, handler: LogHandler) -> None:
    handler.handle(line("otel_ml.anything", "of our own"))
    handler.handle(line("somebody", "of theirs"))

    assert [line.rpartition(": ")[2] for _, line in lines(captured)] == ["of theirs"]


def test_a_message_that_logs_does_not_go_round(captured: Capture, handler: LogHandler) -> None:
    class Talkative:
        def __str__(self) -> str:
            handler.handle(line("somebody", "I am asked for my name"))
            return "my name"

    handler.handle(line("somebody", Talkative()))

    assert [line.rpartition(": ")[2] for _, line in lines(captured)] == ["my name"]


def test_secrets_are_hidden(captured: Capture, logger: logging.Logger) -> None:
    logger.info("token=hf_abcdefghijklmnopqrstuvwxyzABCDEFGH")

    assert "hf_abc" not in lines(captured)[0][1]


def test_a_flood_is_counted_and_what_comes_after_it_is_kept(captured: Capture, logger: logging.Logger) -> None:
    for number in range(50_000):
        logger.info("%d", number)
    assert captured.notices
    logger.info("after")

    kept = [line.rpartition(": ")[2] for _, line in lines(captured)]

    assert kept[0] == "0"
    assert kept[-1] == "after"
    assert "more than 1000 lines at once" in captured.notices[0]


def test_a_line_that_comes_while_others_are_taken_is_looked_for_too(
    captured: Capture, handler: LogHandler, logger: logging.Logger
) -> None:
    class Overtaken(deque[Any]):
        def popleft(self) -> Any:
            waiting.lines = deque(self)  # this happens once
            meanwhile = threading.Thread(target=logger.info, args=("meanwhile",))
            meanwhile.start()
            meanwhile.join()
            return waiting.lines.popleft()

    waiting = handler._begun(current_step().generation)
    waiting.lines = Overtaken()  # two threads at the same place, each time
    logger.info("first")

    lines(captured)  # they are taken
    assert [line.rpartition(": ")[2] for _, line in lines(captured)] == ["first", "meanwhile"]


def test_without_a_run_nothing_is_kept(logger: logging.Logger) -> None:
    logger.info("to nobody")

    with capture() as later:
        assert lines(later) == []


def test_a_forked_child_does_not_repeat_its_parents_lines(
    captured: Capture, handler: LogHandler, logger: logging.Logger
) -> None:
    logger.info("the parent's")
    child = os.fork()
    if child == 0:
        os._exit(len(handler._waiting))
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert [line.rpartition(": ")[2] for _, line in lines(captured)] == ["the parent's"]


def test_what_a_library_logs_on_the_background_thread_is_left_out(captured: Capture, logger: logging.Logger) -> None:
    def make() -> Iterator[LogRecord]:
        logger.info("of a library that is used there")
        yield LogRecord("made", None, {})

    logger.info("of the program")
    current_events().put("a call", make)
    assert "made" in {event.kind for event in captured.events}

    assert ["of the program" in said for _, said in lines(captured)] == [True]


def test_a_message_whose_arguments_do_not_fit_it_is_said_by_logging_and_the_next_one_is_kept(
    captured: Capture, handler: LogHandler, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = line("train.loop", "loss is %d")
    wrong.args = ("unknown",)
    for record in (wrong, line("train.loop", "and on")):
        handler.handle(record)

    assert "--- Logging error ---" in capsys.readouterr().err
    assert [text.rpartition(" ")[2] for _, text in lines(captured)] == ["on"]
