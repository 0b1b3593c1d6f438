"""The SLURM script of docs/deployment.md, as it stands: one agent on each node, and the ranks it asks for."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.launchers.launched import ROOT

pytestmark = [pytest.mark.launchers, pytest.mark.timeout(120)]

STAND_IN = "#!/bin/bash\necho $SLURMD_NODENAME >> {folder}/{name}\n{then}\n"
AGENTS_ARE_THERE = "until [ $(cat agents 2>/dev/null | wc -l) -ge 2 ]; do sleep 0.1; done"


def test_the_script_starts_one_agent_on_each_node(cluster: Mapping[str, str], tmp_path: Path) -> None:
    (tmp_path / "collector-config").mkdir()
    (tmp_path / "bin").mkdir()
    _write(tmp_path / "collector-config/start", STAND_IN.format(folder=tmp_path, name="agents", then="sleep 60"))
    _write(tmp_path / "bin/python", STAND_IN.format(folder=tmp_path, name="ranks", then=AGENTS_ARE_THERE))
    _write(tmp_path / "job.sh", _script())

    environ = {**cluster, "PATH": f"{tmp_path}/bin:{cluster['PATH']}"}
    subprocess.run(["sbatch", "--wait", "--output=out", "job.sh"], env=environ, cwd=tmp_path, check=True, timeout=100)

    assert Counter((tmp_path / "agents").read_text().split()) == {"node0": 1, "node1": 1}
    assert Counter((tmp_path / "ranks").read_text().split()) == {"node0": 2, "node1": 2}


def _script() -> str:
    page = (ROOT / "docs/deployment.md").read_text()
    return next(block for block in page.split("```") if "#SBATCH" in block).removeprefix("bash\n")


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
