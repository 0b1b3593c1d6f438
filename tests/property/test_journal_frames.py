"""What is read of a journal's file, whatever became of its bytes: exactly the entries that are as they were written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.storage.journal_frames import Entry, as_frame, as_head, drop_frame, read, seed_of

IDENTITY = "0123456789abcdef" * 2
SEED = seed_of(IDENTITY)

signals = st.sampled_from(["metrics", "traces", "logs"])
bodies = st.binary(max_size=40).map(lambda body: body + b"\x01") | st.just(b"\xff\xfejr" * 20 + b"\x01")
written = st.lists(st.tuples(signals, bodies) | st.integers(1, 9), max_size=12)
"""A request of a signal, or up to which id everything is dropped. OTLP ends in zeros seldom, and a lost power may."""


def a_file(what: list[tuple[str, bytes] | int]) -> tuple[bytes, list[tuple[int, int, Entry | int]]]:
    """Return the bytes of a file, and where each of its frames begins and ends."""
    content = as_head(IDENTITY)
    frames: list[tuple[int, int, Entry | int]] = []
    for number, one in enumerate(what, start=1):
        begin = len(content)
        if isinstance(one, int):
            content += drop_frame(one, SEED)
            frames.append((begin, len(content), one))
        else:
            content += as_frame(number, *one, SEED) + one[1]
            frames.append((begin, len(content), Entry(number, *one)))
    return content, frames


@given(
    written, st.floats(0, 1), st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), max_size=4)
)
def test_of_a_file_that_is_cut_and_changed_anywhere_exactly_the_frames_that_are_whole_are_read(
    what: list[tuple[str, bytes] | int], share: float, flips: list[tuple[float, int]]
) -> None:
    content, frames = a_file(what)
    after = bytearray(content[: round(share * len(content))])
    for place, change in flips if after else []:
        after[int(place * len(after))] ^= change

    whole = [one for begin, end, one in frames if after[begin:end] == content[begin:end]]
    found = read(bytes(after), IDENTITY)

    assert found.entries == [one for one in whole if isinstance(one, Entry)]
    assert found.dropped == max((one for one in whole if isinstance(one, int)), default=0)
    if after == content[: len(after)]:
        assert found.damaged == 0


@given(written, st.floats(0, 1), st.integers(0, 5000))
def test_a_file_that_ends_anywhere_or_in_zeros_is_not_damaged(
    what: list[tuple[str, bytes] | int], share: float, zeros: int
) -> None:
    content, frames = a_file(what)
    cut = round(share * len(content))
    before_zeros = len(content[:cut].rstrip(b"\0"))

    found = read(content[:cut] + bytes(zeros), IDENTITY)

    assert found.damaged == 0
    sure = [one for _, end, one in frames if end <= cut and isinstance(one, Entry)]
    maybe = [one for _, end, one in frames if end <= before_zeros + zeros and isinstance(one, Entry)]
    assert found.entries[: len(sure)] == sure
    assert len(sure) <= len(found.entries) <= max(len(sure), len(maybe))


@given(written, st.data())
def test_one_changed_byte_costs_its_own_frame_and_that_is_seen(
    what: list[tuple[str, bytes] | int], data: st.DataObject
) -> None:
    content, frames = a_file(what)
    place = data.draw(st.integers(0, len(content) - 1))
    changed = bytearray(content)
    changed[place] ^= data.draw(st.integers(1, 255).filter(lambda change: changed[place] != change))

    found = read(bytes(changed), IDENTITY)

    kept = [one for begin, end, one in frames if not begin <= place < end and isinstance(one, Entry)]
    assert found.entries == kept
    assert found.damaged > 0


def test_a_frame_that_a_sender_has_put_into_its_request_is_no_frame_though_what_is_around_it_is_damaged() -> None:
    forged = drop_frame(2**40, seed_of("guessed")) + as_frame(7, "logs", b"forged", seed_of("")) + b"forged"
    content, frames = a_file([("metrics", forged), ("metrics", b"whole")])
    begin = frames[0][0]

    found = read(content[:begin] + b"?" + content[begin + 1 :], IDENTITY)

    assert (found.entries, found.dropped) == ([Entry(2, "metrics", b"whole")], 0)
    assert found.damaged == frames[0][1] - begin


def test_a_file_of_another_journal_holds_nothing_of_this_one_and_is_damaged() -> None:
    content, _ = a_file([("metrics", b"one")])

    assert read(content, "another") == ([], 0, len(content))
