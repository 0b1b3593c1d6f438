from __future__ import annotations

import pytest

from otel_ml._internal.error_reporting import ErrorReporter, RecordingError
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.log import log
from tests.unit.otel_ml.record.decoded import points


def test_what_was_said_before_anybody_listened_is_handed_over_once():
    reporter, said = ErrorReporter(), []
    reporter.say("spool-full", "early")
    reporter.connect(said.append)
    reporter.say("spool-full", "early")
    reporter.say("no-step", "later")
    reporter.connect(said.append)

    assert said == ["early (otel-ml explain spool-full)", "later (otel-ml explain no-step)"]


@pytest.mark.feature("F14", "better", "counted in the run too, and reported once for the whole job")
def test_every_drop_is_counted_and_said_once():
    reporter, said = ErrorReporter(), []
    reporter.connect(said.append)
    reporter.drop("bad_value", "No number.", 2)
    reporter.drop("bad_value", "No number.")

    assert (reporter.dropped, said) == ({"bad_value": 3}, ["No number. (otel-ml explain bad-value)"])


def test_a_process_that_is_wrong_in_ever_new_ways_stops_talking():
    reporter, said = ErrorReporter(), []
    reporter.connect(said.append)
    for i in range(5000):
        reporter.say("bad-value", f"sentence {i}")

    assert len(said) == 1000


def test_strict_mode_raises_and_still_counts():
    reporter = ErrorReporter()
    reporter.strict = True
    with pytest.raises(RecordingError, match=r"No number\. \(otel-ml explain bad-value\)"):
        reporter.drop("bad_value", "No number.")

    assert reporter.dropped == {"bad_value": 1}


class Hostile(dict):  # type: ignore[type-arg]
    def items(self):
        raise RuntimeError("hostile")


def test_what_a_mapping_of_the_program_raises_never_reaches_the_training_loop(recorded):
    log(Hostile(x=1.0))
    log({"x": 1.0})

    assert len(points(recorded.collect())) == 1
    assert recorder.dropped == {"bad_value": 1}


def test_what_a_mapping_of_the_program_raises_is_told_in_strict_mode(recorded):
    recorded.configure(strict=True)
    with pytest.raises(RecordingError, match="hostile"):
        log(Hostile(x=1.0))
