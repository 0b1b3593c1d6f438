"""What is written as JSON is what Python's own module reads back, whoever of the two wrote it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_exporters.json_text import json_text

_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
CONTENTS = st.recursive(_LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(CONTENTS)
def test_everything_comes_back_as_it_went(content: Any) -> None:
    back = json.loads(json_text(content, default=dict))

    assert repr(back) == repr(content)  # nan is not equal to itself, -0.0 is equal to 0.0


@given(CONTENTS)
def test_it_is_one_line_for_whoever_reads_lines(content: Any) -> None:
    text = json_text(content, default=dict)

    assert len(text.decode("ascii").splitlines()) == 1


@given(st.dictionaries(st.text(), st.floats()))
def test_no_number_becomes_null(values: Mapping[str, float]) -> None:
    back = json.loads(json_text({"values": MappingProxyType(values)}, default=dict))["values"]

    assert {name: value.hex() for name, value in back.items()} == {
        name: math.nan.hex() if math.isnan(value) else value.hex() for name, value in values.items()
    }


def test_what_neither_knows_is_asked_for() -> None:
    assert json_text({"x": np.float32(0.5)}, default=lambda value: value.item()) == b'{"x":0.5}'  # type: ignore[attr-defined]


def test_what_nobody_knows_is_an_error() -> None:
    with pytest.raises(TypeError):
        json_text({"x": object()}, default=dict)
