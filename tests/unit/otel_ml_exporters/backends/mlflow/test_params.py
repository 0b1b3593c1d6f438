from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from otel_ml_exporters.backends.mlflow.names import Names
from otel_ml_exporters.backends.mlflow.params import MAX_PARAM_VALUE, flattened, reconciled

nested = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.dictionaries(st.text(), nested, max_size=5))
def test_whatever_is_given_becomes_keys_and_values_that_mlflow_takes(params: dict[str, object]) -> None:
    added, _ = reconciled(params, {}, Names({}, []).key)

    assert all(0 < len(key) <= 250 and "//" not in key and key[0] != "/" for key in added)
    assert all(len(value) <= MAX_PARAM_VALUE for value in added.values())


@given(st.dictionaries(st.text(), nested, max_size=5))
def test_the_same_parameters_again_add_nothing(params: dict[str, object]) -> None:
    added, _ = reconciled(params, {})

    assert reconciled(params, added)[0] == {}


def test_two_spellings_of_one_key_are_a_conflict() -> None:
    added, conflicts = reconciled({"a": {"b": 1}, "a.b": 2}, {})

    assert added == {"a.b": "1"}
    assert conflicts == ["a.b: kept '1', not '2'"]


def test_twenty_levels_become_one_dotted_key() -> None:
    params: dict[str, object] = {"leaf": math.inf}
    for level in range(20):
        params = {f"l{level}": params}

    ((key, value),) = flattened(params)

    assert key == ".".join([*(f"l{level}" for level in reversed(range(20))), "leaf"])
    assert value == "inf"


def test_an_empty_group_is_kept() -> None:
    assert dict(flattened({"optimizer": {}})) == {"optimizer": "{}"}
