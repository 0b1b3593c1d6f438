"""A SLURM of two nodes on this machine, from Debian's `slurm-wlm`; it needs root, and ends with the block."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.ports import free_port
from tests.waiting import eventually

NODES = ("node0", "node1")

CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldPort={controller}
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
"""


@contextmanager
def slurm(folder: Path) -> Iterator[Mapping[str, str]]:
    """Start munge, the controller and both nodes; yield the environment in which `srun` and `sbatch` find them."""
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    environ = {**os.environ, "SLURM_CONF": str(_write_configuration(folder))}
    with ExitStack() as ending:
        _start_munge(ending, folder)
        _start(ending, ["slurmctld", "-D"], environ, folder / "controller.out")
        for node in NODES:
            (folder / f"spool-{node}").mkdir()
            _start(ending, ["slurmd", "-D", "-N", node], environ, folder / f"{node}.out")
        eventually(lambda: _are_idle(environ), timeout=60)
        yield environ


def _write_configuration(folder: Path) -> Path:
    (folder / "state").mkdir()
    host = os.uname().nodename
    nodes = "\n".join(
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=4 State=UNKNOWN"
        for node in NODES
    )
    path = folder / "slurm.conf"
    path.write_text(CONFIGURATION.format(folder=folder, controller=free_port(), nodes=nodes, host=host))
    return path


def _start_munge(ending: ExitStack, folder: Path) -> None:
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    socket = folder / "munge.socket"
    files = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "log", "pid", "seed")]
    _start(
        ending, ["munged", "--foreground", "--force", f"--socket={socket}", *files], os.environ, folder / "munge.out"
    )
    eventually(socket.exists, timeout=30)


def _start(ending: ExitStack, command: list[str], environ: Mapping[str, str], log: Path) -> None:
    found = shutil.which(command[0], path=f"{os.environ['PATH']}:/usr/sbin")
    assert found, f"{command[0]} is not installed: apt-get install slurm-wlm munge"
    with log.open("wb") as out:
        process = subprocess.Popen([found, *command[1:]], env=environ, stdout=out, stderr=out)
    ending.callback(process.wait)
    ending.callback(process.terminate)


def _are_idle(environ: Mapping[str, str]) -> bool:
    shown = subprocess.run(["sinfo", "-h", "-N", "-o", "%T"], env=environ, capture_output=True, text=True, check=False)
    return shown.stdout.split() == ["idle"] * len(NODES)
