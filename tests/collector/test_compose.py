"""docker-compose.yml follows the specification, and what it starts takes a job to MLflow, TensorBoard and files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.collector.compose import COMPOSE, DOCKERFILE, content, up
from tests.collector.everything_once import assert_everything_is_there_once
from tests.collector.pipeline import EVERYWHERE, experiment_of, ranks, training
from tests.e2e.jobs import BACKENDS, ROOT, Scalars, scalars_in, until
from tests.e2e.oracle import expected
from tests.e2e.rank import written_in
from tests.e2e.test_every_backend_equals_the_oracle import as_stored

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_it_follows_the_compose_specification() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0, done.stdout


def test_every_image_is_pinned_and_every_process_is_not_root() -> None:
    dockerfile = DOCKERFILE.read_text()
    images = [service["image"] for service in content()["services"].values()]
    bases = [line.split()[1] for line in dockerfile.splitlines() if line.startswith("FROM ")]

    assert [image for image in images if not re.search(r":\d+\.\d+\.\d+$", image)] == []
    assert [base for base in bases if base != "base" and not re.search(r":\d+\.\d+\.\d+", base)] == []
    targets = {service["build"]["target"] for service in content()["services"].values()}
    for target in targets:
        assert "\nUSER otel-ml\n" in dockerfile.partition(f" AS {target}\n")[2].partition("\nFROM ")[0]


def test_the_collector_of_the_image_is_the_one_that_is_tested() -> None:
    [image] = re.findall(r"^FROM otel/opentelemetry-collector-contrib:(\S+)", DOCKERFILE.read_text(), re.MULTILINE)

    assert f"receiver/otlpreceiver v{image}\n" in (ROOT / "collector-config" / "builder.yaml").read_text()


def test_every_port_is_published_to_this_host_only_and_every_service_has_a_health_check() -> None:
    for name, service in content()["services"].items():
        assert service["healthcheck"]["test"], name
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), name


def test_the_example_environment_names_every_variable_the_file_asks_for() -> None:
    asked = set(re.findall(r"\$\{(\w+)", COMPOSE.read_text()))
    named = set(re.findall(r"^(\w+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))

    assert asked == named


def test_a_job_goes_through_everything_that_compose_starts(tmp_path: Path) -> None:
    experiment, token = experiment_of(tmp_path), "a-token"
    with up(tmp_path, OTEL_ML_TOKEN=token, OTEL_ML_EXPORTERS=EVERYWHERE) as native:
        collector, service = (f"http://127.0.0.1:{native.ports[port]}" for port in ("14318", "4318"))
        commands = ranks(
            tmp_path, collector, seed=5, roles={"trainer": 2, "generator": 1}, steps=10, pause=0.02,
            OTEL_ML_EXPERIMENT_ID=experiment, OTEL_EXPORTER_OTLP_HEADERS=f"authorization=Bearer%20{token}",
        )  # fmt: skip
        with training(commands, tmp_path):
            pass
        until(lambda: is_delivered(service, experiment, token), seconds=120)
        wanted = expected(written_in(tmp_path / "written"))
        lines = scalars_in("jsonl", tmp_path / "runs" / "oracle" / experiment)
        assert set(wanted) - set(lines) == set()
        board = Board(f"http://127.0.0.1:{native.ports['6006']}", f"oracle/{experiment}/tensorboard")
        board.has_read(set(wanted))
        for name in wanted:  # a name is there before the last of its values
            until(lambda name=name: board.scalars([name])[name].keys() >= lines[name].keys())
        served = {
            "tensorboard": board.scalars(wanted),
            "mlflow": mlflow_scalars(f"http://127.0.0.1:{native.ports['5000']}", experiment, wanted),
        }
        native.stop("service")

    assert_everything_is_there_once(
        tmp_path, tmp_path / "runs" / "oracle" / experiment, ("jsonl", "tensorboard", "wandb")
    )
    for backend, shown in served.items():
        stored = {name: {step: as_stored(backend, value) for step, value in lines[name].items()} for name in wanted}
        assert {name: as_text(values) for name, values in shown.items()} == {
            name: as_text(values) for name, values in stored.items()
        }, backend


def as_text(values: Mapping[int, float]) -> dict[int, str]:
    """Return values so that NaN equals NaN."""
    return {step: repr(value) for step, value in sorted(values.items())}


def is_delivered(service: str, experiment: str, token: str) -> bool:
    account = asked(service, experiment, token)
    delivered = [one["delivered_seq"] == account["last_seq"] for one in account.get("exporters", {}).values()]
    return account.get("status") not in {None, "running"} and len(delivered) == len(BACKENDS) and all(delivered)


def asked(service: str, experiment: str, token: str) -> dict[str, Any]:
    """Return what a service says about a run; empty where nothing of it has arrived, or nobody answers now."""
    request = urllib.request.Request(
        f"{service}/otel_ml/runs/{experiment}", headers={"authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return dict(json.load(answer))
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return {}


class Board:
    """What TensorBoard's server shows of one run."""

    def __init__(self, url: str, run: str) -> None:
        self._url, self._run = f"{url}/data/plugin/scalars", run

    def tags(self) -> set[str]:
        """Return the names it has read by now."""
        with urllib.request.urlopen(f"{self._url}/tags", timeout=10) as answer:
            return set(json.load(answer).get(self._run, ()))

    def has_read(self, names: set[str]) -> None:
        """Wait until it shows these names; say which it does not."""
        with suppress(AssertionError):
            until(lambda: self.tags() >= names, seconds=60)
        assert names - self.tags() == set()

    def scalars(self, names: Iterable[str]) -> Scalars:
        return {name: self._values(name) for name in names}

    def _values(self, name: str) -> dict[int, float]:
        query = urllib.parse.urlencode({"run": self._run, "tag": name})
        with urllib.request.urlopen(f"{self._url}/scalars?{query}", timeout=10) as answer:
            return {step: float(value) for _, step, value in json.load(answer)}


def mlflow_scalars(url: str, run_name: str, names: Iterable[str]) -> Scalars:
    """Return metrics of the only run that MLflow's server has, asked over its REST interface."""
    body = json.dumps({"experiment_ids": ["1"], "max_results": 10}).encode()
    request = urllib.request.Request(f"{url}/api/2.0/mlflow/runs/search", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        [run] = json.load(answer)["runs"]
    assert run["info"]["run_name"] == run_name
    tags = {tag["key"]: tag["value"] for tag in run["data"]["tags"]}
    written = {  # where MLflow does not take a name, its key there
        name: key
        for tag, part in tags.items()
        if tag.startswith("otel_ml.names.")
        for key, name in json.loads(part).items()
    }
    return {name: mlflow_values(url, run["info"]["run_id"], written.get(name, name)) for name in names}


def mlflow_values(url: str, run_id: str, name: str) -> dict[int, float]:
    query = urllib.parse.urlencode({"run_id": run_id, "metric_key": name})
    with urllib.request.urlopen(f"{url}/api/2.0/mlflow/metrics/get-history?{query}", timeout=30) as answer:
        return {int(point.get("step", 0)): float(point["value"]) for point in json.load(answer)["metrics"]}
