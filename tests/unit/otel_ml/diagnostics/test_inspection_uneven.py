"""Statistics of a tensor of which ranks hold parts of different sizes, reduced by the real service's engine."""

from __future__ import annotations

import pytest
import torch

from otel_ml.diagnostics.inspection.statistics import state_of
from tests.strategies import Rank, Service

STATS = ("std", "mean", "l2_norm")


@pytest.mark.parametrize("rows", [(3, 2), (1, 1, 5), (4, 4)])
@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_a_tensor_in_uneven_parts_has_the_deviation_of_the_whole(rows: tuple[int, ...], offset: float) -> None:
    torch.manual_seed(0)
    whole = torch.randn(sum(rows), 6) + offset
    whole[:2] *= 10
    service, ranks = Service(), [Rank(number) for number in range(len(rows))]

    for rank, part in zip(ranks, whole.split(rows), strict=True):
        state = state_of(part)
        assert state is not None
        for name, value in state.values(STATS, copies=1, parts=len(rows)):
            records = value.records.reshape(-1).tolist()
            weights = None if value.weight is None else [value.weight] * len(records)
            service.take(rank.record(0, {name: records}, ",".join(value.reduce), weights=weights))
        service.take(rank.bye())

    expected = {"std": whole.std(correction=0), "mean": whole.mean(), "l2_norm": whole.norm()}
    assert service.rows()[0] == pytest.approx({name: value.item() for name, value in expected.items()}, rel=1e-5)
