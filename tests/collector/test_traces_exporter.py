"""Spans of a job leave the service for a real Collector, and are there what `spans.jsonl` says."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.collector.pipeline import Program, Service, collector_command, experiment_of, training
from tests.e2e.jobs import environment, until
from tests.ports import free_port
from tests.waiting import whole_lines

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

CONFIG = """
extensions:
  health_check: {{endpoint: "127.0.0.1:{health}"}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{http}"}}}}}}
exporters:
  file: {{path: "{file}", flush_interval: 200ms}}
service:
  extensions: [health_check]
  pipelines:
    traces: {{receivers: [otlp], exporters: [file]}}
  telemetry: {{metrics: {{level: none}}}}
"""

RANK = """
import otel_ml

with otel_ml.init("traced"):
    for step in otel_ml.steps(range(20)):
        with otel_ml.timed("forward"), otel_ml.timed("attention"):
            otel_ml.log({"loss": 1.0})
"""


def job(folder: Path, endpoint: str, experiment: str) -> list[tuple[list[object], dict[str, str]]]:
    program, host = folder / "rank.py", folder / "host"
    program.write_text(RANK)
    host.mkdir(mode=0o700)
    shared = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_ML_EXPERIMENT_ID": experiment, "XDG_RUNTIME_DIR": host}
    return [
        ([sys.executable, program], environment(OTEL_SERVICE_NAME=role, RANK=rank, WORLD_SIZE=size, **shared))
        for role, size in (("trainer", 2), ("generator", 1))
        for rank in range(size)
    ]


def collector(folder: Path, http: int, file: Path) -> Program:
    config, health = folder / "traces.yaml", free_port()
    config.write_text(CONFIG.format(health=health, http=http, file=file))
    command = [collector_command()[0], "--config", config]
    return Program("collector", command, environment(), folder, f"http://127.0.0.1:{health}/")


def value_of(any_value: dict[str, Any]) -> Any:
    [(kind, value)] = any_value.items()
    return int(value) if kind == "intValue" else value


def attributes(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    return {pair["key"]: value_of(pair["value"]) for pair in pairs}


def arrived(file: Path) -> Iterator[tuple[str, str, str, str, str, int, int, int | None]]:
    for line in whole_lines(file) if file.exists() else ():
        for resource in json.loads(line)["resourceSpans"]:
            process = attributes(resource["resource"]["attributes"])
            for one in (one for scope in resource["scopeSpans"] for one in scope["spans"]):
                yield (
                    one["traceId"], one["spanId"], one.get("parentSpanId", ""), one["name"],
                    f"{process['service.name']} {process['ml.rank']}",
                    int(one["startTimeUnixNano"]), int(one["endTimeUnixNano"]),
                    attributes(one["attributes"]).get("ml.step"),
                )  # fmt: skip


def stored(run: Path) -> list[tuple[str, str, str, str, str, int, int, int | None]]:
    rows = map(json.loads, (run / "spans.jsonl").read_text().splitlines())
    return [
        (
            row["trace_id"], row["span_id"], row["parent_id"] or "", row["name"], f"{row['role']} {row['rank']}",
            row["start_ns"], row["end_ns"], row["step"],
        )
        for row in rows
    ]  # fmt: skip


@pytest.mark.feature("R21", "better", "spans of all processes go to any OTLP backend, also one that was away")
def test_every_span_reaches_the_collector_also_when_it_was_away(tmp_path: Path) -> None:
    experiment, http, file = experiment_of(tmp_path), free_port(), tmp_path / "traces.jsonl"
    endpoint = {"OTEL_ML_TRACES_ENDPOINT": f"http://127.0.0.1:{http}"}
    with Service(tmp_path, "jsonl,traces", **endpoint) as service:
        commands = job(tmp_path, service.endpoint, experiment)
        with training(commands, tmp_path):
            pass  # nobody takes spans yet
        with collector(tmp_path, http, file):
            service.wait_for_the_end_of(experiment)
            run = service.run_of(experiment)
            until(lambda: set(arrived(file)) == set(stored(run)))

    found = stored(run)
    assert {process for _, _, _, _, process, *_ in found} == {"trainer 0", "trainer 1", "generator 0"}
    assert len(found) == len(set(found)) > 100
