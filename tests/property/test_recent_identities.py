"""What was seen once is known again for as long as is promised, in bounded memory, also after a restart."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.aggregation.recent_identities import SIZE, RecentIdentities

SPAN_S = 10.0
MOST = 4
_arrivals = st.lists(
    st.tuples(st.sampled_from([0.0, 1.0, 4.0, 9.0, 10.0, 25.0]), st.lists(st.integers(0, 9), max_size=5))
)


def digest(number: int) -> bytes:
    return bytes([number] * SIZE)


class Reference:
    """Two lists of what came in this span and in the one before."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.spans: list[list[bytes]] = [[], []]
        self.began: float | None = None

    def add(self, digests: Sequence[bytes], now: float) -> list[bool]:
        """Return which of them are new; a span is over by the clock, or because it is full."""
        found = []
        for number, one in enumerate(digests):
            is_full = len(self.spans[-1]) >= self.most
            if self.began is None:
                self.began = now
            elif now >= self.began + SPAN_S or is_full:
                self.spans, self.began = [self.spans[-1], []], now
            found.append(not any(one in span for span in self.spans))
            if found[number]:
                self.spans[-1].append(one)
        return found


@given(_arrivals)
def test_one_by_one_each_is_known_for_one_to_two_spans(arrivals: list[tuple[float, list[int]]]) -> None:
    recent, reference, now = RecentIdentities(SPAN_S, MOST), Reference(MOST), 100.0

    for after, numbers in arrivals:
        now += after
        digests = [digest(number) for number in numbers]
        assert [recent.add_digest(one, now) for one in digests] == reference.add(digests, now)


@given(_arrivals, _arrivals)
def test_after_a_restart_what_was_known_is_known(
    before: list[tuple[float, list[int]]], then: list[tuple[float, list[int]]]
) -> None:
    """A commit writes what is fresh, by generation; those of the newest two are read back."""
    recent, now, written = RecentIdentities(SPAN_S, MOST), 100.0, dict[int, bytes]()
    for after, numbers in before:
        now += after
        for number in numbers:
            recent.add_digest(digest(number), now)
        for generation, added in recent.take_fresh():
            written[generation] = written.get(generation, b"") + added
    restored = RecentIdentities(SPAN_S, MOST)
    newest = {number: joined for number, joined in written.items() if number >= recent.generation - 1}

    restored.restore(recent.state(), newest)

    for after, numbers in then:
        now += after
        for number in numbers:
            assert restored.add_digest(digest(number), now) == recent.add_digest(digest(number), now)


@given(st.lists(st.text() | st.integers() | st.tuples(st.text(), st.integers()), unique_by=repr, max_size=8))
def test_what_looks_different_is_different(identities: list[object]) -> None:
    recent = RecentIdentities(SPAN_S)

    assert all(recent.add(one, 0.0) for one in identities)
    assert not any(recent.add(one, SPAN_S / 2) for one in identities)
