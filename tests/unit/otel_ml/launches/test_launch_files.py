"""What launches leave for their ranks is removed when they are over, and not before."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from otel_ml._internal.identity.launch_file import started_by, sweep
from otel_ml._internal.identity.launcher_process import start_time

SWEEPS = (
    "import sys; from pathlib import Path; from otel_ml._internal.identity.launch_file import sweep; "
    "sweep(Path(sys.argv[1]))"
)


def test_a_container_that_shares_the_folder_leaves_what_launches_of_the_host_need(tmp_path: Path) -> None:
    file = tmp_path / "one.launch.json"
    with subprocess.Popen(["sleep", "60"]) as launcher:
        file.write_text(json.dumps(started_by((launcher.pid, start_time(launcher.pid)))))

        in_container = ["unshare", "--user", "--map-current-user", "--pid", "--fork", "--mount-proc"]
        subprocess.run([*in_container, sys.executable, "-c", SWEEPS, str(tmp_path)], check=True)
        sweep(tmp_path)
        is_there = file.exists()
        launcher.kill()

    sweep(tmp_path)
    assert is_there
    assert not file.exists()
