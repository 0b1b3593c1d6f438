"""A job on two hosts with two ranks each, as its launcher starts it.

    python -m tests.collector.two_hosts FOLDER COMMAND…

Runs beside the hosts, see `hosts.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.collector.hosts import address_of, on_host
from tests.e2e.jobs import all_finished, environment, processes

RANKS = 4


def main() -> None:
    folder, command = Path(sys.argv[1]), sys.argv[2:]
    job = []
    for rank in range(RANKS):
        host = rank // 2
        runtime = folder / f"runtime{host}"
        runtime.mkdir(mode=0o700, exist_ok=True)
        variables = environment(
            RANK=rank, WORLD_SIZE=RANKS, LOCAL_RANK=rank % 2, LOCAL_WORLD_SIZE=2, GROUP_RANK=host,
            MASTER_ADDR=address_of(0), MASTER_PORT=29500, XDG_RUNTIME_DIR=runtime,
        )  # fmt: skip
        job.append((on_host(host, *command), variables))
    with processes(job, folder) as started:
        sys.stderr.writelines(all_finished(started))


if __name__ == "__main__":
    main()
