"""One process prints what a run has to say, whoever is rank 0 of its role; and nothing is lost when it is gone."""

from __future__ import annotations

from otel_ml_service.live_runs.run_notices import PrintingProcess


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_of_those_who_would_print_the_first_one_does_and_goes_on() -> None:
    speaker = PrintingProcess()

    assert speaker.first_for("trainer", 0, 1, set()) == 0
    assert speaker.first_for("generator", 1, 2, set()) is None
    assert speaker.first_for("trainer", 1, 2, set()) == 0, "an answer that was lost is asked for again"


def test_when_it_has_left_the_next_one_gets_what_nobody_was_told() -> None:
    speaker = PrintingProcess()
    speaker.first_for("trainer", 0, 2, set())

    assert speaker.first_for("generator", 2, 3, {"trainer"}) == 2
    assert speaker.first_for("buffer", 3, 3, {"trainer"}) is None


def test_when_it_leaves_news_lying_another_one_takes_over() -> None:
    clock = Clock()
    speaker = PrintingProcess(clock)
    speaker.first_for("trainer", 0, 1, set())

    assert speaker.first_for("generator", 1, 2, set()) is None
    clock.now = 9.0
    assert speaker.first_for("generator", 1, 2, set()) is None
    clock.now = 11.0
    assert speaker.first_for("generator", 1, 2, set()) == 1
    assert speaker.first_for("trainer", 2, 2, set()) is None


def test_a_long_silence_without_news_is_no_reason_to_take_over() -> None:
    clock = Clock()
    speaker = PrintingProcess(clock)
    speaker.first_for("trainer", 0, 1, set())
    clock.now = 1000.0

    assert speaker.first_for("generator", 1, 1, set()) is None
    assert speaker.first_for("generator", 1, 2, set()) is None, "the trainer may just be about to ask"
