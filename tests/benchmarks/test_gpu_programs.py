"""Each program of the part `gpu` runs, on a CPU and for a moment: so that it does where there is a GPU."""

from __future__ import annotations

import pytest

from tests.benchmarks.gpu.measured import measured_on
from tests.benchmarks.gpu.shapes import SMOKE
from tests.benchmarks.gpu.targets import GPU_TARGETS


@pytest.mark.full
@pytest.mark.timeout(600)
def test_the_programs_measure_what_the_targets_ask_for_and_lose_nothing() -> None:
    found = measured_on("cpu", SMOKE).figures

    asked = {limit.figure for target in GPU_TARGETS for limit in target.limits}
    asked |= {name for target in GPU_TARGETS for name, _ in target.beside}
    assert asked - {f"gpu/{name}" for name in found} == set()
    assert [name for name, figure in found.items() if name.endswith(".lost") and figure.value] == []
