from __future__ import annotations

import pytest

from otel_ml._internal.guard import Guard, RecordingError
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.log import log
from tests.unit.otel_ml.record.decoded import points


def test_what_was_said_before_anybody_listened_is_handed_over_once():
    guard, said = Guard(), []
    guard.say("spool-full", "early")
    guard.connect(said.append)
    guard.say("spool-full", "early")
    guard.say("no-step", "later")
    guard.connect(said.append)

    assert said == ["early (otel-ml explain spool-full)", "later (otel-ml explain no-step)"]


@pytest.mark.feature("F14", "better", "counted in the run too, and said once for the whole job")
def test_every_drop_is_counted_and_said_once():
    guard, said = Guard(), []
    guard.connect(said.append)
    guard.drop("bad_value", "No number.", 2)
    guard.drop("bad_value", "No number.")

    assert (guard.dropped, said) == ({"bad_value": 3}, ["No number. (otel-ml explain bad-value)"])


def test_a_process_that_is_wrong_in_ever_new_ways_stops_talking():
    guard, said = Guard(), []
    guard.connect(said.append)
    for i in range(5000):
        guard.say("bad-value", f"sentence {i}")

    assert len(said) == 1000


def test_strict_mode_raises_and_still_counts():
    guard = Guard()
    guard.strict = True
    with pytest.raises(RecordingError, match=r"No number\. \(otel-ml explain bad-value\)"):
        guard.drop("bad_value", "No number.")

    assert guard.dropped == {"bad_value": 1}


class Hostile(dict):  # type: ignore[type-arg]
    def items(self):
        raise RuntimeError("hostile")


def test_what_goes_wrong_inside_never_reaches_the_training_loop(recorded):
    log(Hostile(x=1.0))
    log({"x": 1.0})

    assert len(points(recorded.collect())) == 1
    assert recorder.dropped == {"internal_error": 1}


def test_what_goes_wrong_inside_is_raised_in_strict_mode(recorded):
    recorded.configure(strict=True)
    with pytest.raises(RuntimeError, match="hostile"):
        log(Hostile(x=1.0))
