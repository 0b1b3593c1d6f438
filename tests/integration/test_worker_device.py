"""A device that is behind when a program ends: what it took is in the run, each step's in its own row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer

BEHIND = """
    import sys, time
    from types import ModuleType, SimpleNamespace

    class Event:  # done 0.3 s after all that was launched before it
        begun = time.perf_counter()
        until = 0.0
        def record(self):
            self.at = Event.until
        def query(self):
            return time.perf_counter() >= Event.begun + self.at + 0.3
        def elapsed_time(self, end):
            assert end.query()
            return (end.at - self.at) * 1e3

    def work(seconds):
        Event.until += seconds

    torch = sys.modules["torch"] = ModuleType("torch")
    torch.Event = lambda device, enable_timing: Event()
    torch.accelerator = torch.Tensor = None
    torch.version = SimpleNamespace(hip=None)
    torch._C = SimpleNamespace(
        _cuda_getDevice=lambda: 0,
        _cuda_hasPrimaryContext=lambda device: False,
        _cuda_getCurrentRawStream=lambda device: 0,
        _cuda_isCurrentStreamCapturing=lambda: False,
        _cuda_memoryStats=None,
        _cuda_resetPeakMemoryStats=None,
    )
    torch.cuda = SimpleNamespace(
        is_initialized=lambda: True, is_available=lambda: True, device_count=lambda: 1, current_stream=None,
        current_device=lambda: 0, is_current_stream_capturing=None, memory_stats_as_nested_dict=None,
        reset_peak_memory_stats=None,
    )

    import otel_ml
    from otel_ml.compat.forge import Tracer

    otel_ml.init("exp")
    for step in otel_ml.steps(range(4)):
        {measure}
"""

OF_OTEL_ML = """with otel_ml.timed("a", device="cuda"):
            work((step + 1) / 64)"""

OF_TORCHFORGE = """tracer = Tracer("work", timer="gpu")
        tracer.start()
        work((step + 1) / 64)
        tracer.step("a")
        tracer.stop()"""


@pytest.mark.parametrize(
    ("measure", "name"),
    [(OF_OTEL_ML, "time/a"), (OF_TORCHFORGE, "work/a/duration_max_s")],
    ids=["otel_ml", "torchforge"],
)
def test_the_last_times_of_a_device_are_in_the_run_each_at_its_step(
    server: OtlpServer, tmp_path: Path, measure: str, name: str
) -> None:
    run(BEHIND.replace("{measure}", measure), environment(tmp_path, variables(server)), tmp_path)

    assert [(point.step, point.value) for point in server.points(name)] == [(n, (n + 1) / 64) for n in range(4)]
