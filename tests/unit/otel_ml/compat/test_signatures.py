"""What a call of the original passes by name is accepted under that name."""

from __future__ import annotations

import importlib
import inspect
from functools import reduce

import pytest

from tests.unit.otel_ml.compat.signatures import SIGNATURES


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, callables in SIGNATURES.items() for name in callables]
)
def test_every_parameter_of_the_original_is_accepted(module: str, name: str) -> None:
    ours = reduce(getattr, name.split("."), importlib.import_module(module))
    parameters = inspect.signature(ours).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())

    assert takes_any or set(SIGNATURES[module][name]) <= parameters.keys()
