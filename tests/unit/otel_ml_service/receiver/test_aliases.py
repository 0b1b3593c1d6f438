"""Names that other programs have for a run, a rank or a step."""

from __future__ import annotations

from typing import Any

from otel_ml_service.aggregation.observation import Observation, ThirdPartyPoints
from otel_ml_service.receiver.decode import Decoder
from tests.otlp import FakeWriter, third_party_request

LENS = {
    "experiment": "nemo.run.id",
    "rank": "dl.rank",
    "step": "dl.iteration",
    "topology.tp": "dl.tensor_parallel.rank",
    "topology.tp.size": "dl.tensor_parallel.size",
}
RESOURCE = {"nemo.run.id": "run", "dl.rank": 3, "dl.tensor_parallel.rank": 1, "dl.tensor_parallel.size": 4}


def decoded(decoder: Decoder, request: Any) -> list[Observation]:
    found = decoder.protobuf("metrics", request.SerializeToString())
    assert found.rejections.total == 0
    return [observation for observations in found.observations.values() for observation in observations]


def test_they_mean_what_ours_mean_however_often_they_come() -> None:
    decoder = Decoder(LENS)

    for step in range(5):  # from the third on messages of a known form are not decoded
        [points] = decoded(
            decoder, third_party_request([{"name": "loss", "value": 0.5, "dl.iteration": step}], RESOURCE)
        )
        assert isinstance(points, ThirdPartyPoints)
        assert (points.step, points.partials.series[0].attributes) == (step, ())
        assert (points.writer.experiment, points.writer.rank) == ("run", 3)
        assert points.writer.topology == (("tp", 1, 4),)


def test_where_both_are_sent_ours_count() -> None:
    resource = {**RESOURCE, "ml.rank": 7}

    [points] = decoded(
        Decoder(LENS), third_party_request([{"name": "x", "value": 1.0, "dl.iteration": 5, "ml.step": 2}], resource)
    )

    assert isinstance(points, ThirdPartyPoints)
    assert (points.step, points.writer.rank) == (2, 7)
    assert points.partials.series[0].attributes == (("dl.iteration", "5"),)


def test_writers_of_ours_are_left_as_they_are() -> None:
    request = FakeWriter(extra={"dl.rank": 5}).step(3, {"loss": 0.5})

    plain, aliased = (decoded(decoder, request) for decoder in (Decoder(), Decoder(LENS)))

    assert [type(one) for one in aliased] == [type(one) for one in plain]
    assert aliased[0].writer.rank == 0
