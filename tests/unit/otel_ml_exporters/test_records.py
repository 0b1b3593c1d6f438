"""Records say the same in fewer numbers where a backend takes no more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_ml_exporters.records import HistogramValue


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=3000))
def test_merged_bins_keep_the_total_and_the_ends(counts: list[int]) -> None:
    fine = HistogramValue(1, 0.0, "h", "step", 0, tuple(map(float, range(len(counts) + 1))), tuple(map(float, counts)))

    merged = fine.merged(512)

    assert len(merged.counts) <= 512
    assert len(merged.edges) == len(merged.counts) + 1
    assert sum(merged.counts) == sum(counts)
    assert (merged.edges[0], merged.edges[-1]) == (fine.edges[0], fine.edges[-1])
    assert list(merged.edges) == sorted(set(merged.edges))
