"""Peaks of devices and FLOPs of models."""

from __future__ import annotations

import pytest
import torch

from otel_ml.diagnostics.flops import PEAKS, counted_flops, peak_flops, transformer_flops


@pytest.mark.feature("M15", "better", "peaks by product and dtype with their sources; unknown products have none")
@pytest.mark.parametrize(
    ("device", "dtype", "teraflops"),
    [
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.5),
        ("NVIDIA H100 PCIe", "bf16", 756.5),
        ("NVIDIA H100 NVL", "torch.float8_e4m3fn", 1671.0),
        ("NVIDIA H200", "tf32", 494.5),
        ("NVIDIA B200", "bfloat16", 2250.0),
        ("NVIDIA A100-SXM4-80GB", "torch.bfloat16", 312.0),
        ("NVIDIA A10", "float16", 125.0),
        ("NVIDIA L40S", "float32", 91.6),
        ("Tesla V100-SXM2-32GB", "float16", 125.0),
        ("Tesla T4", "float16", 65.0),
        ("AMD Instinct MI300X", "bfloat16", 1307.4),
    ],
)
def test_a_device_has_the_dense_peak_of_its_product_and_dtype(device: str, dtype: str, teraflops: float) -> None:
    assert peak_flops(device, dtype) == pytest.approx(teraflops * 1e12)


@pytest.mark.parametrize(
    ("device", "dtype"),
    [
        ("NVIDIA GeForce GTX 1080", "float16"),
        ("NVIDIA A10G", "bfloat16"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "bfloat16"),
        ("Tesla V100-SXM2-16GB", "bfloat16"),
        ("NVIDIA A100-SXM4-40GB", "float8"),
        ("NVIDIA H20", "bfloat16"),
    ],
)
def test_what_is_not_in_the_table_has_no_peak(device: str, dtype: str) -> None:
    assert peak_flops(device, dtype) is None


def test_every_peak_names_its_source() -> None:
    assert all(peak.source and peak.teraflops for peak in PEAKS)


def test_attention_adds_to_six_flops_a_parameter_and_token() -> None:
    assert transformer_flops(1e9, tokens=10) == 6e10
    assert transformer_flops(1e9, tokens=10, layers=2, hidden=8, sequence=4) == 6e10 + 12 * 2 * 8 * 4 * 10


@pytest.mark.feature("I14", "better", "FLOPs of any model, forward and backward, counted by torch")
def test_torch_counts_forward_and_backward_of_any_model() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2))
    batch = torch.ones(16, 8)

    forward = counted_flops(lambda: net(batch))
    both = counted_flops(lambda: net(batch).sum().backward())

    assert forward == 2 * 16 * (8 * 4 + 4 * 2)
    assert both == forward + 2 * 16 * (8 * 4 + 2 * 4 * 2)  # of each weight, and of the input of the second layer
