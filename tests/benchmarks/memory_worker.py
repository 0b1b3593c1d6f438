"""A worker and its memory over bare Python: `python -m tests.benchmarks.memory_worker STEPS`, prints JSON.

Imports nothing that a training program would not: what is here before otel_ml is what is compared with.
"""

import sys

VALUES = {f"metric_{index}": float(index) for index in range(11)}
"""With the timer 12 values a step."""

SAMPLES = 100
FLUSH_EVERY = 1000
"""Steps: 12,000 values, which take a job of 50-ms steps 50 s. Else what is measured is the backlog of a loop that only
records, thousands of steps a second."""


def resident() -> int:
    """Return the memory of this process in bytes."""
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 (pathlib is memory, too)
        return int(file.read().split()[1]) * 4096


def main(steps: int) -> None:
    bare = resident()
    import otel_ml

    otel_ml.init("bench")
    samples = [(0, bare)]
    every = max(1, steps // SAMPLES)
    for step in range(steps):
        otel_ml.set_step(step)
        otel_ml.log(VALUES)
        with otel_ml.timed("phase"):
            pass
        if step % FLUSH_EVERY == FLUSH_EVERY - 1:
            otel_ml.flush(30)
        if step % every == every - 1:
            samples.append((step + 1, resident()))
    otel_ml.shutdown()
    print("\n" + str([list(sample) for sample in samples]))


if __name__ == "__main__":
    main(int(sys.argv[1]))
