"""`every` means the same in every exporter that is built in, and what it cannot be is said in the same words."""

from __future__ import annotations

from typing import Any

import pytest

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.registry import BUILT_IN, exporter_class


@pytest.mark.parametrize("name", sorted(BUILT_IN))
@pytest.mark.parametrize("every", [0, "2", 0.5, None])
def test_what_is_no_number_of_steps_is_refused_at_configuration(name: str, every: Any) -> None:
    with pytest.raises(ConfigError, match=rf"{name}\.every: expected a number of steps from 1, got {every!r}\."):
        exporter_class(name)(every=every)
