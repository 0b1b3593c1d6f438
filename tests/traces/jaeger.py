"""A real Jaeger, and what it answers to those who ask it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.collector.pipeline import Program
from tests.e2e.jobs import ROOT, environment
from tests.ports import free_port

__all__ = ["Jaeger"]

Resource: TypeAlias = "Mapping[str, Any]"
Span: TypeAlias = "Mapping[str, Any]"

JAEGER = ROOT / ".cache" / "jaeger" / "jaeger"

# As it is without a configuration, but for the ports. Without the processor `batch`, what was answered is stored.
CONFIG = """
service:
  extensions: [jaeger_storage, jaeger_query, healthcheckv2]
  pipelines:
    traces: {{receivers: [otlp], exporters: [jaeger_storage_exporter]}}
  telemetry: {{metrics: {{level: none}}}}
extensions:
  healthcheckv2: {{use_v2: true, http: {{endpoint: "127.0.0.1:{health}"}}}}
  jaeger_query:
    storage: {{traces: memory}}
    http: {{endpoint: "127.0.0.1:{query}"}}
    grpc: {{endpoint: "127.0.0.1:{query_grpc}"}}
  jaeger_storage: {{backends: {{memory: {{memory: {{max_traces: 100000}}}}}}}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{otlp}"}}}}}}
exporters:
  jaeger_storage_exporter: {{trace_storage: memory}}
"""

ALL_TIMES = {"query.start_time_min": "2000-01-01T00:00:00Z", "query.start_time_max": "2100-01-01T00:00:00Z"}


class Jaeger(Program):
    """Jaeger with free ports; it takes spans at `otlp`."""

    def __init__(self, folder: Path) -> None:
        assert JAEGER.exists(), "There is no Jaeger to test with. Run: .ci/jaeger"
        otlp, self._query, health, query_grpc = (free_port() for _ in range(4))
        self.otlp = f"http://127.0.0.1:{otlp}"
        config = folder / "jaeger.yaml"
        config.write_text(CONFIG.format(otlp=otlp, query=self._query, health=health, query_grpc=query_grpc))
        command = [JAEGER, "--config", config]
        super().__init__("jaeger", command, environment(), folder, f"http://127.0.0.1:{health}/status")

    def ask(self, path: str, **parameters: object) -> Any:
        """Return the JSON at `path` of its API."""
        with urlopen(f"http://127.0.0.1:{self._query}{path}?{urlencode(parameters)}", timeout=60) as answer:
            return json.load(answer)

    def services(self) -> set[str]:
        return set(self.ask("/api/v3/services")["services"])

    def trace_ids(self) -> set[str]:
        """Return the ids of all traces that it has."""
        found = (
            self.ask("/api/v3/traces", **ALL_TIMES, **{"query.service_name": name, "query.num_traces": 100_000})
            for name in self.services()
        )
        return {span["traceId"] for answer in found for _, span in spans_in(answer["result"])}

    def spans(self, trace_ids: Iterable[str], *, raw: bool = False) -> list[tuple[Resource, Span]]:
        """Return the resource and the OTLP span of all that it shows of these traces; `raw`: of all that it stores."""
        every = (self.ask(f"/api/v3/traces/{one}", raw_traces=str(raw).lower()) for one in sorted(trace_ids))
        return [pair for answer in every for pair in spans_in(answer["result"])]

    def found(self, service: str, tags: Mapping[str, str]) -> list[Mapping[str, Any]]:
        """Return the traces that its page finds of a service by tags."""
        parameters = {"service": service, "tags": json.dumps(tags), "limit": 1000}
        answer: list[Mapping[str, Any]] = self.ask("/api/traces", **parameters)["data"]
        return answer


def spans_in(result: Mapping[str, Any]) -> Iterator[tuple[Resource, Span]]:
    for of_resource in result["resourceSpans"]:
        for of_scope in of_resource["scopeSpans"]:
            for span in of_scope.get("spans", ()):  # it leaves an empty scope where a span came again
                yield of_resource["resource"], span
