"""Nothing that happens to the service or the network reaches the training loop."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import otel_ml
from tests.e2e.jobs import begun_services_of, environment, processes, reach, the_run_in, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

LONGEST_CALL_S = 0.5  # calls take microseconds; one that waits for a socket takes at least its time-out of seconds


@pytest.fixture(params=["refuses", "never answers"])
def dead_endpoint(request: pytest.FixtureRequest) -> Iterator[str]:
    """An address where nothing answers, as long as the test runs."""
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        if request.param == "never answers":
            listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def longest_call(output: str) -> float:
    return float(re.search(r"^longest (\S+)$", output, re.MULTILINE)[1])


@pytest.mark.feature("R6", "better", "a backend that hangs or fails never reaches the loop")
def test_training_goes_on_when_the_service_or_the_network_is_gone_and_says_so_once(
    dead_endpoint: str, tmp_path: Path
) -> None:
    env = environment(OTEL_EXPORTER_OTLP_ENDPOINT=dead_endpoint)

    with processes([([sys.executable, "-m", "tests.e2e.loop", 300, 0.01], env)], tmp_path) as [training]:
        output, said = training.communicate(timeout=60)

    assert training.returncode == 0
    assert longest_call(output) < LONGEST_CALL_S
    assert len([line for line in said.splitlines() if re.search("reach|no answer", line)]) == 1, said


def test_training_goes_first_on_the_cores_it_shares_with_an_embedded_service(tmp_path: Path) -> None:
    env = environment(OTEL_ML_EXPERIMENT_ID="goes-first")

    with processes([([sys.executable, "-m", "tests.e2e.loop", 300, 0.02], env)], tmp_path) as [training]:
        reach(training, 50)
        service = service_of("goes-first")
        until(lambda: os.getpriority(os.PRIO_PROCESS, service) > os.getpriority(os.PRIO_PROCESS, training.pid))
        training.communicate(timeout=60)

    assert training.returncode == 0


def test_every_value_is_counted_once_even_when_the_service_is_killed_with_kill_9(tmp_path: Path) -> None:
    env = environment(OTEL_ML_EXPERIMENT_ID="kill-the-service")

    with processes([([sys.executable, "-m", "tests.e2e.loop", 300, 0.02], env)], tmp_path) as [training]:
        reach(training, 50)
        kill_service("kill-the-service")
        output, said = training.communicate(timeout=60)

    assert training.returncode == 0, said
    assert longest_call(output) < LONGEST_CALL_S
    run = the_run_in(tmp_path / "otel-ml-runs")
    everything = (list(range(300)), [float(step) for step in range(300)])
    assert otel_ml.read(run)["loss"] == everything


def kill_service(experiment: str) -> None:
    """Kill -9 the embedded service of one experiment, once it is there."""
    os.kill(service_of(experiment), signal.SIGKILL)


def service_of(experiment: str) -> int:
    """Return the process id of the embedded service of one experiment, once it is there: a thread of ours starts it."""
    [service] = until(lambda: begun_services_of(OTEL_ML_EXPERIMENT_ID=experiment), seconds=30)
    return service
