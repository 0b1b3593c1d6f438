"""Numbers of torch's allocator: Megatron's keys, dumps, and what a model should need."""

from __future__ import annotations

import pytest
import torch

import otel_ml
from otel_ml.diagnostics.device_memory import MEMORY_KEYS, device_memory, report_memory
from otel_ml.diagnostics.hardware import MemoryStages
from otel_ml.diagnostics.memory_dump import dump_memory, dump_on_out_of_memory, record_memory_history
from otel_ml.diagnostics.theoretical_memory import theoretical_memory
from otel_ml.testing import Capture, otel_ml_capture

__all__ = ["otel_ml_capture"]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The statistics of a CUDA device, which a test may change."""
    stats = dict.fromkeys(MEMORY_KEYS, 0) | {"reserved_bytes.all.peak": 51_234_567_890, "num_alloc_retries": 2}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: stats)
    return stats


@pytest.mark.feature("M17", "better", "largest of all ranks, without a collective; keys to choose")
def test_megatrons_memory_keys_are_recorded_as_the_largest_of_all_ranks(
    device: dict[str, int], otel_ml_capture: Capture
) -> None:
    otel_ml.set_step(3)
    for rank, peak in enumerate((40_000_000_000, 51_234_567_890)):
        device["reserved_bytes.all.peak"] = peak
        with otel_ml_capture.rank(rank):
            found = report_memory()

    assert found["mem-max-reserved-gigabytes"] == 51.235  # five digits
    assert found["mem-alloc-retires"] == 2
    assert len(found) == len(MEMORY_KEYS)
    points = [p for p in otel_ml_capture.points if p.name == "memory/mem-max-reserved-gigabytes"]
    assert [(p.rank, p.step, p.reduction, p.value) for p in points] == [(0, 3, "max", 40.0), (1, 3, "max", 51.235)]


def test_a_stage_of_the_start_whose_memory_cannot_be_read_raises_nothing(
    otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> int:
        raise RuntimeError("CUDA error: device-side assert triggered")

    stages = MemoryStages()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", broken)

    stages.mark("model")

    assert any("MemoryStages.mark()" in notice for notice in otel_ml_capture.notices)


def test_chosen_keys_are_reported_and_an_unknown_one_is_said(device: dict[str, int], otel_ml_capture: Capture) -> None:
    found = report_memory({"num_alloc_retries": "retries", "reserved_bytes.all.peek": "x-bytes"}, step=1)

    assert found == {"retries": 2.0}
    (notice,) = otel_ml_capture.notices
    assert "no number 'reserved_bytes.all.peek'. Did you mean 'reserved_bytes.all.peak'?" in notice


def test_without_a_device_nothing_is_recorded_and_nothing_is_zero(otel_ml_capture: Capture) -> None:
    assert report_memory() == {}
    assert device_memory() == {}
    assert otel_ml_capture.points == []


def test_dumps_without_a_device_say_so_and_do_nothing(otel_ml_capture: Capture) -> None:
    assert [record_memory_history(), dump_memory(), dump_on_out_of_memory()] == [False, False, False]
    assert all("there is no CUDA device" in notice for notice in otel_ml_capture.notices)
    assert len(otel_ml_capture.notices) == 3


@pytest.mark.feature("M37", "yes", "`theoretical_memory()`")
@pytest.mark.parametrize(
    ("recompute", "bytes_per_token"), [("none", 34 + 5 * 16 * 1024 / 1024), ("selective", 34), ("full", 2)]
)
def test_the_estimate_follows_the_published_formulas(recompute: str, bytes_per_token: float) -> None:
    model = {"layers": 4, "hidden": 1024, "heads": 16, "vocabulary": 50_000, "sequence": 1024, "micro_batch": 2}

    found = theoretical_memory(**model, recompute=recompute)

    assert found.activations == 4 * 2 * 1024 * 1024 * bytes_per_token
    assert found.weights_and_optimizer == pytest.approx(18 * found.parameters, rel=1e-3)
    assert theoretical_memory(**model, data=12, sharded_optimizer=True).weights_and_optimizer == pytest.approx(
        7 * found.parameters, rel=1e-3
    )


def test_an_output_of_its_own_has_the_embeddings_parameters_again() -> None:
    model = {"layers": 2, "hidden": 64, "heads": 4, "vocabulary": 1000, "sequence": 8, "micro_batch": 1}

    tied, apart = theoretical_memory(**model, tied=True), theoretical_memory(**model, tied=False)

    assert apart.parameters - tied.parameters == 64 * 1000
    assert apart.weights_and_optimizer - tied.weights_and_optimizer == 18 * 64 * 1000


def test_the_parameters_of_the_estimate_are_those_of_a_real_model() -> None:
    layer = torch.nn.TransformerEncoderLayer(64, 4, 256, bias=False)
    embedding = torch.nn.Embedding(1000, 64)
    real = 2 * sum(p.numel() for p in layer.parameters()) + embedding.weight.numel()

    found = theoretical_memory(layers=2, hidden=64, heads=4, vocabulary=1000, sequence=8, micro_batch=1)

    assert found.parameters == pytest.approx(real, rel=0.01)
