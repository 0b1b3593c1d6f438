"""Which fields of a point of another SDK are known by their place, and which have to be decoded."""

from __future__ import annotations

from typing import Any

import pytest

from otel_ml_service.receiver.point_positions import UnknownError, point_places
from tests.otlp import START, third_party_request

KINDS = pytest.mark.parametrize("kind", ["gauge", "sum", "histogram"])


def scope_and_point(kind: str) -> tuple[Any, Any]:
    request = third_party_request([])
    scope = request.resource_metrics[0].scope_metrics[0]
    return scope, getattr(scope.metrics.add(name="loss"), kind).data_points.add(time_unix_nano=START, flags=300)


@KINDS
def test_a_point_with_flags_is_known_by_its_places(kind: str) -> None:
    scope, point = scope_and_point(kind)
    if kind == "histogram":
        point.count, point.sum = 3, 1.5
    else:
        point.as_double = 0.5

    [found] = point_places(scope.SerializeToString())

    assert len(found.stats) == (2 if kind == "histogram" else 1)


@KINDS
def test_a_point_with_an_exemplar_has_to_be_decoded(kind: str) -> None:
    scope, point = scope_and_point(kind)
    point.exemplars.add(as_double=1.0, time_unix_nano=START)

    with pytest.raises(UnknownError):
        point_places(scope.SerializeToString())
