"""A pipeline of ROLL: metrics of a batch, lists from workers, trajectories; only the imports are new.

    python examples/migrate/roll_pipeline.py

Expected: for 5 global steps `critic/*`, `tokens/*`, `system/*`, `time/*` and `val/score/*`, `actor/pg_loss` as the sum
of what two workers returned, a table of trajectories, and a line of JSON a step on stdout.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np

from otel_ml.compat.roll import MetricsManager, create_tracker, log_trajectories


def batch_of(random: np.random.Generator, samples: int = 8, tokens: int = 6) -> SimpleNamespace:
    prompt = np.zeros((samples, 2 * tokens))
    prompt[:, :tokens] = 1
    response = 1 - prompt
    data = {
        "prompt_mask": prompt,
        "response_mask": response,
        "final_response_mask": response[:, 1:],
        "responses": np.zeros((samples, tokens)),
        "scores": random.integers(0, 2, samples).astype(float),
        "token_level_rewards": random.normal(size=(samples, 2 * tokens - 1)),
        "advantages": random.normal(size=(samples, 2 * tokens - 1)),
        "raw_advantages": random.normal(size=(samples, 2 * tokens - 1)),
        "returns": random.normal(size=(samples, 2 * tokens - 1)),
    }
    return SimpleNamespace(batch=data, meta_info={"agg_entropy": 0.5})


def main() -> None:
    random = np.random.default_rng(0)
    tracker = create_tracker("tensorboard,stdout", {"lr": 1e-6, "rollout_batch_size": 8}, project="roll-pipeline")
    for global_step in range(5):
        began = time.perf_counter()
        batch = batch_of(random)
        manager = MetricsManager()
        manager.add_all_metrics(global_step, batch, n_sample=4)
        manager.add_validation_metrics(batch.batch["scores"])
        manager.add_metrics({"actor/pg_loss@sum": [0.25, 0.5], "actor/lr": 1e-6})
        manager.add_timer_metrics({"rollout": time.perf_counter() - began})
        tracker.log(manager.get_metrics(), step=global_step)
        log_trajectories("rollouts", [{"response": "x", "score": s} for s in batch.batch["scores"]], step=global_step)
    tracker.finish()


if __name__ == "__main__":
    main()
