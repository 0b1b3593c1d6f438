from __future__ import annotations

from otel_ml_service.live_runs.run_notices import RunNotices
from otel_ml_service.receiver.partial_success import Rejected


def rejected(sender: str, reason: str = "it has no value") -> Rejected:
    return Rejected("exp", sender, reason, "rejected-points")


def test_what_was_said_is_handed_out_once_in_its_order() -> None:
    notices = RunNotices([])
    nothing = bool(notices)
    notices.say("storage", "One.")
    notices.say("storage", "Two.")

    assert (nothing, bool(notices)) == (False, True)
    assert [said.partition(" (")[0] for said in notices.take()] == ["One.", "Two."]
    assert (bool(notices), notices.take()) == (False, [])


def test_a_sender_is_named_once_for_each_kind_of_reason() -> None:
    notices = RunNotices([])
    for one in (rejected("a"), rejected("a"), rejected("b"), rejected("a", "'x' is 7"), rejected("a", "'y' is 8")):
        notices.say_rejected(one)

    assert [said.partition(", and lost: ")[0] for said in notices.take()] == [
        "What a sends is rejected",
        "What b sends is rejected",
        "What a sends is rejected",
    ]


def test_what_was_said_before_a_restart_is_not_said_again() -> None:
    notices = RunNotices([rejected("a").sentence])
    notices.say_rejected(rejected("a"))
    notices.say_rejected(rejected("b"))

    assert list(notices.take()) == [rejected("b").sentence]


def test_twenty_kinds_are_named_and_at_the_next_it_is_said_that_there_are_more_and_nothing_after_that() -> None:
    notices = RunNotices([])
    for number in range(25):
        notices.say_rejected(rejected(f"sender {chr(97 + number)}"))

    said = notices.take()
    assert len(said) == 21
    assert list(said[:20]) == [rejected(f"sender {chr(97 + number)}").sentence for number in range(20)]
    assert said[20].startswith("Points of further senders or for further reasons are rejected, and counted.")
