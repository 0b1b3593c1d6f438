from __future__ import annotations

import pytest

import otel_ml
from otel_ml.exceptions import ConfigError


@pytest.mark.parametrize(
    ("given", "meant"),
    [("experiment_name", "experiment"), ("project", "experiment"), ("run_name", "name"), ("exporter", "exporters"),
     ("config", "params"), ("worldsize", "world_size")],
)  # fmt: skip
def test_an_argument_that_init_does_not_have_comes_with_the_one_that_is_meant(given: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"init\({given}=\): there is no such argument. Did you mean '{meant}'\?"):
        otel_ml.init("x", **{given: "y"})  # type: ignore[arg-type]


def test_all_that_is_wrong_in_a_call_of_init_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        otel_ml.init(dirr="x", rank=-1, zzz=1)  # type: ignore[arg-type]

    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "init(dirr=)",
        "init(zzz=)",
        "init(rank=)",
    ]
    assert "Did you mean" not in caught.value.problems[1]
