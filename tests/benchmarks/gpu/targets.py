"""What was asked for on a GPU of the class of an H100 or H200, and what it was when it was first looked at."""

from __future__ import annotations

from tests.benchmarks.targets import Limit, Target

__all__ = ["FIRST_SEEN", "GPU_TARGETS"]

FIRST_SEEN = "5d41eb7"
"""The commit at which the figures of the references were taken, by other programs, on an H200 with torch 2.11."""

GPU_TARGETS = (
    Target(
        "`record()` of a device scalar, in a loop",
        "≤ 10 µs",
        (Limit("gpu/record", 10), Limit("gpu/record.cold", None, "once in a step")),
        "20.6 µs",
    ),
    Target(
        "`log()` of 50 device scalars",
        "≤ 100 µs, ≤ 1/4 of 50 × `.item()` of an idle GPU; 4 launches",
        (
            Limit("gpu/log_50", 100),
            Limit("gpu/log_50.ratio", 1 / 4, "of 50 × `.item()`"),
            Limit("gpu/log_50.launches", 4, "launches"),
            Limit("gpu/log_50.cold", None, "once in a step"),
        ),
        "1,533–1,965 µs",
        (("gpu/items_50", "50 × `.item()`"),),
    ),
    Target(
        "An `operation()` with the memory of devices; a timer of a device; once in a step",
        "≤ 150 µs; ≤ 25 µs",
        (Limit("gpu/operation", 150), Limit("gpu/timer", 25, "a timer")),
        "620–860 µs; 64–140 µs",
    ),
    Target(
        "`Norms` of gradients and parameters, 144 tensors, 151 million",
        "≤ 300 µs on the thread; the GPU ≤ 1.5 × reading the memory once; 12 launches",
        (
            Limit("gpu/norms", 300, "on the thread"),
            Limit("gpu/norms.device.ratio", 1.5, "the GPU, × reading once:"),
            Limit("gpu/norms.launches", 12, "launches"),
        ),
        "23,361 µs",
        (("gpu/norms.device", "the GPU"), ("gpu/norms.floor", "reading gradients and parameters once")),
    ),
    Target(
        "30 device scalars in a step that is bound by launches, 151 million",
        "slower by ≤ 1.5 %",
        (Limit("gpu/scalars_30.slowdown", 1.5), Limit("gpu/scalars_30.calls", None, "in the call")),
        "13 % (7…28)",
        (("gpu/scalars_30.step", "a step"),),
    ),
    Target(
        "A step with 30 device scalars, 20 timers, `Norms` of gradients, of parameters each tenth step, hardware "
        "monitor, goodput and throughput",
        "slower by ≤ 1 % with 806 million, by ≤ 2 % with 151 million",
        (
            Limit("gpu/everything.large.slowdown", 1, "806 million"),
            Limit("gpu/everything.small.slowdown", 2, "151 million"),
            Limit("gpu/everything.large.calls", None, "in the calls, 806 million"),
            Limit("gpu/everything.small.calls", None, "151 million"),
        ),
        "norms alone doubled the small one's",
        (("gpu/everything.large.step", "a step, 806 million"), ("gpu/everything.small.step", "151 million")),
    ),
    Target(
        "`Inspector`: 24 linear layers, 3 tensors, 5 statistics and FP8",
        "slower by ≤ 30 % each step, by ≤ 1 % with `freq=100`; 30 launches",
        (
            Limit("gpu/inspector.each.slowdown", 30, "each step"),
            Limit("gpu/inspector.seldom.slowdown", 1, "`freq=100`"),
            Limit("gpu/inspector.each.launches", 30, "launches"),
        ),
        "2,360 %",
        (("gpu/inspector.each.step", "a step"),),
    ),
    Target(
        "`log()` and `timed()` within `torch.compile(fullgraph=True)`",
        "0 graph breaks; values equal those of eager code",
        (Limit("gpu/compiled.breaks", 0, "breaks"), Limit("gpu/compiled.wrong", 0, "wrong")),
        "an error",
    ),
    Target(
        "In a step with everything: calls that wait for the device, on any thread; values that are lost or wrong",
        "0; 0",
        (
            Limit("gpu/waits.caller", 0, "on the caller's thread"),
            Limit("gpu/waits.others", 0, "on others"),
            Limit("gpu/scalars_30.lost", 0, "values"),
            Limit("gpu/everything.small.lost", 0),
            Limit("gpu/everything.large.lost", 0),
        ),
        "0; 0 (each value was lost in torch's sync debug mode `error`)",
    ),
)
