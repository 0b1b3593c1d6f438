"""What the service has to say is printed once for the job, also where several roles have a rank 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from otel_ml._internal.console import Console
from otel_ml._internal.identity.ranks import JobPlace
from otel_ml._internal.identity.run_identity import Identity
from otel_ml._internal.lifecycle.notices import Notices

SAID = ["Rank 1 is slow.", "Rank 2 is slow.", "Rank 3 is slow."]


def heard(notices: Notices, run: Mapping[str, Any], *, is_last: bool = False) -> None:
    notices.hear(run)
    notices.print_of(run, is_last=is_last)


@pytest.fixture
def notices() -> Notices:
    return Notices(Console(is_quiet=False), Identity("run", "me", JobPlace()))


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.removeprefix("otel_ml: ") for line in capsys.readouterr().err.splitlines()]


def test_who_is_not_the_one_to_print_prints_nothing(notices: Notices, capsys: pytest.CaptureFixture[str]) -> None:
    heard(notices, {"notices": SAID, "told": 3, "speaks_from": None})

    assert printed(capsys) == []
    assert not notices.has_more(3), "what another one has printed is not asked for again"
    assert notices.has_more(4)


def test_what_nobody_has_printed_is_asked_for_again(notices: Notices, capsys: pytest.CaptureFixture[str]) -> None:
    heard(notices, {"notices": SAID[:1], "told": 0, "speaks_from": None})
    heard(notices, {"notices": SAID[:2], "told": 1, "speaks_from": None})

    assert printed(capsys) == []
    assert notices.has_more(2)


def test_who_takes_over_prints_what_is_new_from_then_on(notices: Notices, capsys: pytest.CaptureFixture[str]) -> None:
    heard(notices, {"notices": SAID[:1], "told": 1, "speaks_from": None})
    heard(notices, {"notices": SAID, "told": 1, "speaks_from": 1})
    heard(notices, {"notices": SAID, "told": 3, "speaks_from": 1})

    assert printed(capsys) == SAID[1:]


def test_the_last_one_to_leave_prints_what_nobody_was_told(
    notices: Notices, capsys: pytest.CaptureFixture[str]
) -> None:
    heard(notices, {"notices": SAID[:1], "told": 1, "speaks_from": None})
    heard(notices, {"notices": SAID, "told": 2, "speaks_from": None}, is_last=True)

    assert printed(capsys) == SAID[2:]


def test_an_older_service_is_asked_for_all_by_every_one_that_would_print(
    notices: Notices, capsys: pytest.CaptureFixture[str]
) -> None:
    heard(notices, {"notices": SAID[:2], "told": None})

    assert printed(capsys) == SAID[:2]
