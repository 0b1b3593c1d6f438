"""Each test with a `device` is two: on a GPU, with the marker `gpu`, for `make gpu`; on the CPU for `make test`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.gpu.devices import DEVICES, Device

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def kernels_are_compiled(request: pytest.FixtureRequest) -> None:
    """Refuse to measure Triton's interpreter as if it were the card."""
    if request.node.get_closest_marker("gpu"):
        assert os.environ["TRITON_INTERPRET"] == "0", "Run `make gpu`, or set TRITON_INTERPRET=0."


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let torch warn of what is new or will change in it: that is not a failure of ours. Captured graphs come last.

    What a graph records into stays on the device as long as the process does, and each new step is told to it.
    """
    items.sort(key=lambda item: item.path == HERE / "test_graphs.py")
    for item in items:
        if item.path.is_relative_to(HERE):
            for kind in ("UserWarning", "FutureWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{kind}"))


@pytest.fixture(params=[pytest.param("cuda", marks=pytest.mark.gpu), "cpu"])
def device(request: pytest.FixtureRequest) -> Device:
    """Return the device of the test."""
    return DEVICES[request.param]


@pytest.fixture
def cuda() -> Device:
    """Return the GPU, for a test that says nothing on a CPU."""
    return DEVICES["cuda"]


class Job:
    """A run of this process, and what is in it once it has ended."""

    def __init__(self) -> None:
        self.read: dict[str, tuple[list[int], list[float]]] = {}

    def __getitem__(self, name: str) -> list[float]:
        return list(self.read[name][1])

    def steps(self, name: str) -> list[int]:
        return list(self.read[name][0])


StartJob = Callable[[], AbstractContextManager[Job]]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> StartJob:
    """Return what runs a block as a job, with a service of its own and JSONL, and reads its run back."""
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "jsonl")
    monkeypatch.setenv("OTEL_ML_CAPTURE", "off")
    monkeypatch.setenv("OTEL_ML_CONSOLE", "off")

    @contextmanager
    def running() -> Iterator[Job]:
        import otel_ml

        run, found = otel_ml.init("gpu"), Job()
        try:
            yield found
        finally:
            otel_ml.shutdown()
        found.read = {name: (list(steps), list(values)) for name, (steps, values) in otel_ml.read(run).items()}

    return running
