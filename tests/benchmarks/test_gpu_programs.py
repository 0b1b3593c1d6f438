"""Each program of the part `gpu` runs, on a CPU and for a moment: so that it does where there is a GPU."""

from __future__ import annotations

from tests.benchmarks.gpu.measured import measured_on
from tests.benchmarks.gpu.shapes import SMOKE
import pytest

@pytest.mark.timeout(400)
def test_each_figure_of_a_target_is_measured() -> None:
    found = measured_on("cpu", SMOKE)
    print(found)
