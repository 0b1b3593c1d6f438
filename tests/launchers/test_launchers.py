"""Each launcher that registries give, for real: one run for each start, values right, ended, nothing left."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.launchers.cases import CASES, Case
from tests.launchers.launched import environment, launch, oracle

pytestmark = [pytest.mark.launchers, pytest.mark.timeout(900)]


@pytest.fixture
def environ(request: pytest.FixtureRequest) -> Mapping[str, str]:
    case = request.node.callspec.params["case"]
    found = environment()
    return {**found, "SLURM_CONF": request.getfixturevalue("cluster")["SLURM_CONF"]} if case.needs_slurm else found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_start_is_a_run(case: Case, environ: Mapping[str, str], tmp_path: Path) -> None:
    assert launch(case, tmp_path / "launched", environ) == oracle(case)
