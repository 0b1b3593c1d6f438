"""What a process says of itself is what is known of it; what is no number is rejected, whoever sends it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.aggregation.observation import Writer
from otel_ml_service.receiver.decode import Decoder
from otel_ml_service.receiver.partial_success import Rejections
from tests.otlp import third_party_request

NUMBERS = {
    "ml.rank": "rank", "ml.world_size": "world_size", "ml.local_rank": "local_rank", "ml.attempt": "attempt",
    "process.pid": "pid",
}  # fmt: skip
TEXTS = {
    "service.name": "role", "service.instance.id": "instance", "ml.parent": "parent", "host.name": "host",
    "ml.experiment.name": "experiment_name", "ml.run.name": "run_name", "ml.notes": "notes", "ml.boot": "boot",
    "ml.pid.namespace": "pid_namespace",
}  # fmt: skip
UNSAID = {"rank": 0, "pid": 0, "parent": None, "notes": None, **dict.fromkeys(("world_size", "local_rank", "attempt"))}
WHOLE = st.integers(0, 2**31 - 1)


def read(resource: Mapping[str, Any]) -> tuple[Writer | None, Rejections]:
    request = third_party_request([{"name": "a", "value": 1.0}], resource={"ml.experiment.id": "run-1", **resource})
    decoded = Decoder().protobuf("metrics", request.SerializeToString())
    return next((found[0].writer for found in decoded.observations.values()), None), decoded.rejections


@given(
    numbers=st.fixed_dictionaries({}, optional={key: WHOLE | WHOLE.map(str) for key in NUMBERS}),
    texts=st.fixed_dictionaries({}, optional={key: st.sampled_from(["a", "größe", "1"]) for key in TEXTS}),
    topology=st.dictionaries(st.sampled_from(["dp", "tp", "a.size.of"]), st.tuples(WHOLE, st.none() | WHOLE)),
    without_role=st.booleans(),
    born=st.none() | st.floats(0, 1e9),
)
def test_a_writer_is_what_its_resource_says(
    numbers: dict[str, int | str],
    texts: dict[str, str],
    topology: dict[str, tuple[int, int | None]],
    without_role: bool,
    born: float | None,
) -> None:
    said: dict[str, Any] = {**numbers, **texts}
    for dim, (at, size) in topology.items():
        said |= {f"ml.topology.{dim}": at} | ({} if size is None else {f"ml.topology.{dim}.size": size})
    said |= {"ml.prefix": ""} if without_role else {}
    said |= {} if born is None else {"ml.boot.born": born}

    writer, rejections = read(said)

    assert not rejections.total
    assert writer is not None
    assert writer.experiment == "run-1"
    for key, name in NUMBERS.items():
        assert getattr(writer, name) == (int(numbers[key]) if key in numbers else UNSAID[name])
    made_up = f"{writer.host}/{numbers.get('process.pid', '')}/{writer.rank}"
    for key, name in TEXTS.items():
        unsaid = made_up if name == "instance" else UNSAID.get(name, "")
        assert getattr(writer, name) == texts.get(key, unsaid)
    assert writer.topology == tuple(sorted((dim, at, size or 0) for dim, (at, size) in topology.items()))
    assert (writer.with_role, writer.born) == (not without_role, born or 0.0)


@pytest.mark.parametrize("key", [*NUMBERS, "ml.topology.dp", "ml.topology.dp.size"])
@pytest.mark.parametrize("value", [-1, 2**31, 1.0, True, "first", "1.0", [1]])
def test_what_is_no_whole_number_is_rejected_and_named(key: str, value: object) -> None:
    writer, rejections = read({"ml.topology.dp": 0, key: value})

    assert (writer, rejections.total, rejections.experiments) == (None, 1, {"run-1": 1})
    assert f"{key!r} is {value!r}; expected a whole number from 0 to 2147483647." in rejections.message


@pytest.mark.parametrize(("said", "tags"), [(["a", 1], ("a", "1")), ("a, b", ("a", "b")), (3, ()), (None, ())])
def test_tags_are_a_list_or_a_text_with_commas(said: object, tags: tuple[str, ...]) -> None:
    writer, _ = read({} if said is None else {"ml.tags": said})

    assert writer is not None
    assert writer.tags == tags


@pytest.mark.parametrize(("key", "longest"), [("service.name", 4096), ("ml.notes", 65536), ("ml.experiment.id", 4096)])
def test_a_text_is_as_long_as_it_may_be_and_no_longer(key: str, longest: int) -> None:
    assert read({key: "x" * longest})[0] is not None
    writer, rejections = read({key: "x" * (longest + 1)})

    assert writer is None
    assert f"{key!r} has {longest + 1} characters; expected at most {longest}." in rejections.message
    assert rejections.experiments == ({} if key == "ml.experiment.id" else {"run-1": 1})


@pytest.mark.parametrize("key", NUMBERS)
def test_a_number_is_as_large_as_it_may_be(key: str) -> None:
    writer, _ = read({key: 2**31 - 1})

    assert writer is not None
    assert getattr(writer, NUMBERS[key]) == 2**31 - 1


def test_a_run_with_the_longest_name_is_told_what_of_it_is_rejected() -> None:
    longest = "x" * 4096

    assert read({"ml.experiment.id": longest, "ml.rank": -1})[1].experiments == {longest: 1}


@pytest.mark.parametrize(("named", "reason"), [("otel-ml doctor", "it is a probe"), ("trainer", "set it to the id of")])
@pytest.mark.parametrize("experiment", ["", 7, None])
def test_a_probe_is_told_apart_from_a_sender_that_nobody_told_of_its_run(
    experiment: object, named: str, reason: str
) -> None:
    resource = {"service.name": named, "ml.experiment.id": experiment}
    request = third_party_request(
        [{"name": "a", "value": 1.0}], resource={k: v for k, v in resource.items() if v is not None}
    )

    decoded = Decoder().protobuf("metrics", request.SerializeToString())

    assert not decoded.observations
    assert reason in decoded.rejections.message
    assert [(one.experiment, one.sender) for one in decoded.rejections.told] == [("", named)]
