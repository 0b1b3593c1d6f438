"""What `otel-ml recover` tells of a run, and while it waits."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from otel_ml.config import Endpoint
from otel_ml.wire.rendezvous import rendezvous_of
from otel_ml_service.cli.recover_outcome import Outcome, Waits
from otel_ml_service.stored_runs.recover import Recovered
from otel_ml_service.stored_runs.unfinished import Unfinished

RUN = Unfinished("01abc", "digits", "01abc", Path("/runs"), 2, rendezvous_of("01abc"), has_folder=True,
                 sent_to={"a": "http://b", "c": "http://a", "d": "http://b"})  # fmt: skip


@pytest.mark.parametrize(
    ("result", "code"), [("delivered", 0), ("lost", 3), ("left", 1), ("left_alone", 0), ("unfinished", 0)]
)
def test_the_exit_code_says_what_is_left(
    result: Literal["delivered", "lost", "left", "left_alone", "unfinished"], code: int
) -> None:
    assert Outcome(RUN, result).code == code


def test_a_program_is_told_everything() -> None:
    done = Recovered(True, 20, 18, 2, ("jsonl",), {"wandb": "no key"}, {"refused": 2})

    found = Outcome(RUN, "lost", Endpoint("http://x"), 2, done, ("why",), ("said",)).as_json("/job")

    assert found == {
        "id": "01abc", "experiment": "digits", "dir": "/runs/digits/01abc", "job_dir": "/job", "spools": 2,
        "sent_to": ["http://a", "http://b"], "result": "lost", "endpoint": "http://x", "spools_delivered": 2,
        "values": 20, "delivered": 18, "exporters": ["jsonl"], "lacking": ["wandb"], "lost": {"refused": 2},
        "problems": ["why"], "notices": ["said"],
    }  # fmt: skip
    assert Outcome(RUN, "left").as_json("/job")["endpoint"] is None


def test_what_takes_long_is_told_once_and_once_more_where_it_fails() -> None:
    now = [100.0]
    said: list[str] = []
    waits = Waits(60.0, said.append, clock=lambda: now[0])
    slow = {"exporters": {"jsonl": {"pending": 3, "problem": None}, "whole": {"pending": 0, "problem": None}}}
    failing = {"exporters": {"jsonl": {"pending": 3, "problem": "disk full"}}}

    waits.look(slow)
    now[0] = 101.9
    waits.look(slow)
    assert said == []
    now[0] = 102.0
    waits.look(slow)
    waits.look(slow)
    now[0] = 110.0
    waits.look(failing)
    waits.look(failing)
    now[0] = 900.0
    waits.look({"exporters": {}, "pending": 2})
    waits.look({"exporters": {}, "pending": 0})

    assert said == [
        "waits for jsonl, for at most 58 s",
        "waits for jsonl, for at most 50 s: disk full",
        "waits for its last steps, for at most 0 s",
    ]


def test_what_fails_is_told_at_once() -> None:
    said: list[str] = []

    Waits(60.0, said.append, clock=lambda: 0.0).look({"exporters": {"jsonl": {"pending": 1, "problem": "disk full"}}})

    assert said == ["waits for jsonl, for at most 1 min: disk full"]
