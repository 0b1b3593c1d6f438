"""A Prometheus endpoint with the names, labels and buckets of vLLM's, of an engine whose load the test decides."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

TIME_TO_FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
LABELS = 'engine="0",model_name="tiny"'


class VllmMetrics:
    """Serves `/metrics`.

    Attributes:
        running: `vllm:num_requests_running`.
        tokens: `vllm:generation_tokens_total`.
        series: how many further gauges there are, for drowning a run.
    """

    def __init__(self, series: int = 0) -> None:
        self.running = 3.0
        self.tokens = 1e6  # the engine is older than the run
        self.series = series
        self.scrapes = 0
        self._first_token_s: list[float] = [50.0] * 1000
        self._lock = threading.Lock()
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with page._lock:
                    body = "\n".join(page.lines()).encode() + b"\n"
                page.scrapes += 1
                self.send_response(200)
                self.send_header("content-type", "text/plain; version=0.0.4")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def serve(self, first_tokens_s: Sequence[float], tokens: int) -> None:
        """Answer so many requests, with so many tokens each: a scrape sees all of them or none."""
        with self._lock:
            self._first_token_s.extend(first_tokens_s)
            self.tokens += tokens * len(first_tokens_s)

    def lines(self) -> Iterator[str]:
        yield "# TYPE vllm:num_requests_running gauge"
        yield f"vllm:num_requests_running{{{LABELS}}} {self.running}"
        yield "# TYPE vllm:kv_cache_usage_perc gauge"
        yield f"vllm:kv_cache_usage_perc{{{LABELS}}} 0.25"
        yield "# TYPE vllm:generation_tokens_total counter"
        yield f"vllm:generation_tokens_total{{{LABELS}}} {self.tokens}"
        name = "vllm:time_to_first_token_seconds"
        yield f"# TYPE {name} histogram"
        values = self._first_token_s
        for bound in TIME_TO_FIRST_TOKEN:
            yield f'{name}_bucket{{{LABELS},le="{bound}"}} {sum(value <= bound for value in values)}'
        yield f'{name}_bucket{{{LABELS},le="+Inf"}} {len(values)}'
        yield f"{name}_count{{{LABELS}}} {len(values)}"
        yield f"{name}_sum{{{LABELS}}} {sum(values)}"
        yield "# TYPE noise gauge"
        for number in range(self.series):
            yield f'noise{{number="{number}"}} {number}'

    def __enter__(self) -> VllmMetrics:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
