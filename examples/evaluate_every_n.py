"""Train, and evaluate every 20 steps on an axis of its own.

    python examples/evaluate_every_n.py

Expected: `loss` at steps 0…99; `eval/error` at 0, 20, 40, 60, 80 of the axis `eval`, weighted by the size of each
evaluation batch, so that the short last batch does not count as much as a full one.
"""

from __future__ import annotations

import numpy as np

import otel_ml

STEPS, EVERY = 100, 20


def evaluate(weight: float, at_step: int) -> None:
    inputs = np.linspace(-1, 1, 50)
    for batch in np.array_split(inputs, [16, 32, 48]):  # 16, 16, 16 and 2 samples
        error = np.mean((weight * batch - 3 * batch) ** 2)
        otel_ml.log({"error": error}, step=at_step, axis="eval", weight=len(batch))


def main() -> None:
    weight, rng = 0.0, np.random.default_rng(0)
    with otel_ml.init("evaluate-every-n", params={"every": EVERY}):
        for step in otel_ml.steps(range(STEPS)):
            x = rng.normal(size=32)
            residual = weight * x - 3 * x
            weight -= 0.1 * float(np.mean(residual * x))
            otel_ml.log({"loss": np.mean(residual**2)})
            if step % EVERY == 0:
                evaluate(weight, step)


if __name__ == "__main__":
    main()
