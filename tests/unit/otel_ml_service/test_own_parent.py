from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from otel_ml.wire.rendezvous import Rendezvous
from tests.waiting import eventually

ANNOUNCED = """
import os, sys
from pathlib import Path
from otel_ml.wire.rendezvous import Rendezvous, Service
from otel_ml_service.own_parent import leave_starter
rendezvous = Rendezvous(Path(sys.argv[1]))
rendezvous.create()
# What a predecessor left says nothing about the one that is started.
os.close(rendezvous.publish(Service("http://127.0.0.1:1", "old", os.getpid(), "/runs/old")))
starter = leave_starter(rendezvous)
print(starter, os.getsid(0), flush=True)
sys.stdin.readline()
handle = rendezvous.publish(Service("http://127.0.0.1:2", "new", os.getpid(), "/runs/new"))
sys.stdin.readline()
"""

FAILING = """
import os, signal, sys
from pathlib import Path
from otel_ml.wire.rendezvous import Rendezvous
from otel_ml_service.own_parent import leave_starter
leave_starter(Rendezvous(Path(sys.argv[1])))
{end}
"""


def started(program: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(folder / "rendezvous")],
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_who_is_started_ends_when_the_service_is_announced_which_lives_on_in_its_session(tmp_path: Path) -> None:
    with started(ANNOUNCED, tmp_path) as starter:
        assert starter.stdin is not None
        assert starter.stdout is not None
        said = starter.stdout.readline().split()
        with pytest.raises(subprocess.TimeoutExpired):  # an announcement of somebody else is none
            starter.wait(0.1)
        starter.stdin.write("announce\n")
        starter.stdin.flush()
        ended = starter.wait(20)
        service = Rendezvous(tmp_path / "rendezvous").read_service()

        assert said == [str(starter.pid)] * 2
        assert ended == 0
        assert service is not None
        assert service.run_dir == "/runs/new"
        assert service.pid != starter.pid
        os.kill(service.pid, 0)  # it lives
        assert Rendezvous(tmp_path / "rendezvous").is_served()
        starter.stdin.write("end\n")
        starter.stdin.flush()
        eventually(lambda: not Rendezvous(tmp_path / "rendezvous").is_served())


@pytest.mark.parametrize(
    ("end", "status"),
    [("sys.exit(3)", 3), ("os._exit(0)", 0), ("os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL)],
)
def test_a_service_that_ends_before_it_is_announced_passes_on_how(tmp_path: Path, end: str, status: int) -> None:
    with started(FAILING.format(end=end), tmp_path) as starter:
        assert starter.wait(20) == status
