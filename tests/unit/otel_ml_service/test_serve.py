from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long

SERVING = """
import gc, json, os, resource, signal, sys
from pathlib import Path
from otel_ml_exporters.testing import RecordingExporter
from otel_ml_service.config import EmbeddedRun, ServiceConfig
from otel_ml_service.serve import serve
folder, embedded = Path(sys.argv[1]), sys.argv[2] == "embedded"
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 256))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
nice = os.getpriority(os.PRIO_PROCESS, 0)
names = EmbeddedRun("run-1", "digits", "big", folder / "rendezvous") if embedded else None
config = ServiceConfig(dir=folder, http=("127.0.0.1", 0), embedded=names, written={"jsonl": {"every": 2}, "lost": {}})
def started(service):
    blocked = sorted(int(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, []))
    is_ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    print(json.dumps([service.endpoint, service.exporters, blocked, is_ignored, files]), flush=True)
serve(config, started, makers={"own": RecordingExporter}, pages="http://127.0.0.1:9/" * embedded, starter=os.getpid())
nicer = os.getpriority(os.PRIO_PROCESS, 0) - nice
print(json.dumps([nicer, gc.get_threshold()[0], os.listdir(folder)]), flush=True)
"""


class Serving:
    """A process that serves, and says what it is when it has begun, and when it has ended."""

    def __init__(self, folder: Path, how: str = "alone") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVING, str(folder), how],
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.began = self.said()

    def said(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline() or self.process.communicate()[1])

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def test_serve_ends_in_order_with_its_terminal(tmp_path: Path) -> None:
    with Serving(tmp_path) as serving:
        endpoint, exporters, blocked, is_ignored, files = serving.began
        serving.process.send_signal(signal.SIGINT)
        nicer, looks_for_garbage_after, left = serving.said()

        assert serving.process.wait(20) == 0
    assert endpoint.startswith("http://127.0.0.1:")
    assert (exporters, blocked, is_ignored, files) == (["own"], [], False, 256)
    assert (nicer, looks_for_garbage_after) == (0, 50_000)
    assert ".service" in left


def test_the_service_of_a_job_is_nice_and_does_not_hear_its_terminal(tmp_path: Path) -> None:
    with Serving(tmp_path, "embedded") as serving:
        assert serving.began[2:4] == [[], True]
        announced = json.loads((tmp_path / "rendezvous" / "service.json").read_text())
        serving.process.send_signal(signal.SIGINT)
        serving.process.send_signal(signal.SIGTERM)
        nicer, _, _ = serving.said()

        assert serving.process.wait(20) == 0
    assert (announced["endpoint"], announced["exporters"]) == (serving.began[0], ["own"])
    assert announced["page"].startswith("http://127.0.0.1:9/run/digits/")
    assert nicer == 5
    assert not (tmp_path / "rendezvous" / "service.json").exists()
