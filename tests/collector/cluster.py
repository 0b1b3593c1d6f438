"""A job on two nodes, an agent on each, a gateway and a service on hosts of their own.

    python -m tests.collector.cluster FOLDER EXPERIMENT

Runs beside the hosts, see `hosts.py`. In mid-run one agent and the gateway are killed.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

from tests.collector.hosts import address_of, on_host
from tests.collector.pipeline import EVERYWHERE, Collector, P, Service, ranks, recover
from tests.e2e.jobs import all_finished, processes, reach

HOSTS = 4
NODES = 2
GATEWAY, SERVICE = 2, 3
TOKEN = "a-token"


def placed(host: int, program: P) -> P:
    """Return the program so that it starts on that host."""
    program.command = [str(part) for part in on_host(host, *program.command)]
    return program


def main() -> None:
    folder, experiment = Path(sys.argv[1]), sys.argv[2]
    (folder / "targets").mkdir()
    with ExitStack() as stack:
        service = Service(folder, EVERYWHERE, address=address_of(SERVICE), OTEL_ML_TOKEN=TOKEN)
        stack.enter_context(placed(SERVICE, service))
        gateway = Collector(
            folder, "gateway", "token", name="gateway", address=address_of(GATEWAY),
            OTEL_ML_SERVICE=service.grpc, OTEL_ML_TOKEN=TOKEN,
        )  # fmt: skip
        stack.enter_context(placed(GATEWAY, gateway))
        agents = [
            Collector(
                folder, "agent", "token", name=f"agent-{node}", address=address_of(node), OTEL_ML_TOKEN=TOKEN,
                OTEL_ML_GATEWAY=gateway.grpc, OTEL_ML_SCRAPE=folder / "targets", OTEL_ML_EXPERIMENT_ID=experiment,
            )
            for node in range(NODES)
        ]  # fmt: skip
        for node, agent in enumerate(agents):
            stack.enter_context(placed(node, agent))
        commands = ranks(
            folder, "", seed=7, roles={"trainer": 4, "generator": 2}, steps=40, pause=0.05,
            OTEL_ML_EXPERIMENT_ID=experiment, OTEL_EXPORTER_OTLP_HEADERS=f"authorization=Bearer%20{TOKEN}",
        )  # fmt: skip
        job = []
        for place, (command, env) in enumerate(commands):
            node = place % NODES
            job.append((on_host(node, *command), {**env, "OTEL_EXPORTER_OTLP_ENDPOINT": agents[node].endpoint}))
        with processes(job, folder) as started:
            for program, moment in ((agents[0], 10), (gateway, 20)):
                reach(started[0], moment)
                program.kill()
                program.start()
            all_finished(started)
        for node, (_, env) in enumerate(job[:NODES]):
            recover(env, folder, on=on_host(node))
        service.wait_for_the_end_of(experiment, seconds=200)
        service.stop()


if __name__ == "__main__":
    main()
