"""What an SDK's points say is found again by what they say: each means the same alone, among others and after them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from otel_ml_service.aggregation.observation import ThirdPartyPoints
from otel_ml_service.receiver.decode import Decoded, Decoder
from tests.otlp import third_party_request


def said(decoded: Decoded) -> tuple[Counter[Any], Counter[str]]:
    """Return what each point of a request became, whichever stand together, and why others were rejected."""
    points: Counter[Any] = Counter()
    for found in decoded.observations.get("run-1", ()):
        assert isinstance(found, ThirdPartyPoints)
        partials = found.partials.unpack()
        where = found.axis, found.step, found.reduction, found.kind
        points.update((where, *row) for row in zip(partials.series, partials.stats[:, 1].tolist(), strict=True))
    return points, Counter(decoded.rejections.reasons)


STEPS = (0, 1, 128, -1, 1.0, 1.5, "7", "", True, [3])
OF_ONE_NAME = (1, 1.0, True, "1", [1], [2], ["1"], None)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"name": st.sampled_from(["a", "b"]), "value": st.floats(allow_nan=False)},
            optional={
                "ml.step": st.sampled_from(STEPS),
                "of": st.sampled_from(OF_ONE_NAME),
                "ml.reduction": st.sampled_from(["max", "nonsense"]),
                "ml.step.axis": st.sampled_from(["eval", ""]),
            },
        ),
        max_size=8,
    )
)
@example([{"name": "a", "value": 1.0, "of": [1]}, {"name": "a", "value": 2.0, "of": [2]}])
def test_what_a_point_of_others_is_does_not_depend_on_those_before_it(sent: list[dict[str, Any]]) -> None:
    decoder = Decoder()
    alone = [said(Decoder().protobuf("metrics", third_party_request([point]).SerializeToString())) for point in sent]

    for _ in range(2):
        points, rejected = said(decoder.protobuf("metrics", third_party_request(sent).SerializeToString()))
        assert points == sum((of_one for of_one, _ in alone), Counter())
        assert rejected == sum((of_one for _, of_one in alone), Counter())
