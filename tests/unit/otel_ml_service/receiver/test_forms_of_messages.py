"""What messages of a form mean is learned from the second one, and remembered within bounds."""

from __future__ import annotations

import numpy as np

from otel_ml_service.receiver.message_templates import Forms


def learned(forms: Forms[str], message: bytes, meaning: str) -> list[bool]:
    """Let a message come three times, and return when its template was wanted; it is made then."""
    shapes, wanted = ((meaning,),), []
    for _ in range(3):
        wanted.append(forms.is_second(message, shapes))
        if wanted[-1]:
            mask = np.full(len(message), 0xFF, dtype=np.uint8)
            mask[-8:] = 0
            forms.add(message, mask, meaning)
    return wanted


def message_of(number: int, size: int) -> bytes:
    return number.to_bytes(8, "little").ljust(size - 8, b"x") + b"numbers!"


def test_a_template_is_wanted_at_the_second_message_and_found_whatever_its_numbers_are() -> None:
    forms = Forms[str]()

    assert learned(forms, message_of(1, 100), "one") == [False, True, False]

    assert forms.find(message_of(1, 100)[:-8] + b"another!") == "one"
    assert forms.find(message_of(2, 100)) is None
    assert forms.find(message_of(1, 101)) is None


def test_where_the_second_message_gave_no_template_further_ones_are_not_tried() -> None:
    forms, shapes = Forms[str](), (("a",),)

    assert [forms.is_second(b"message", shapes) for _ in range(4)] == [False, True, False, False]


def test_of_one_length_sixteen_forms_are_remembered() -> None:
    forms = Forms[str]()
    wanted = [any(learned(forms, message_of(number, 100), f"{number}")) for number in range(20)]

    assert wanted == [True] * 16 + [False] * 4
    assert [forms.find(message_of(number, 100)) for number in (0, 15, 16)] == ["0", "15", None]


def test_the_forms_of_a_large_job_are_remembered_all_together() -> None:
    forms = Forms[str]()
    for number in range(1_000):
        learned(forms, message_of(number, 2_000 + number), f"{number}")

    assert [forms.find(message_of(number, 2_000 + number)) for number in range(1_000)] == list(map(str, range(1_000)))


def test_beyond_the_bound_it_begins_anew_with_what_came_last() -> None:
    forms = Forms[str](1_000)
    for number in range(6):
        learned(forms, message_of(number, 300 + number), f"{number}")

    found = [forms.find(message_of(number, 300 + number)) for number in range(6)]
    assert found == [None, None, None, "3", "4", "5"]
