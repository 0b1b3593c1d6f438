"""Megatron's training loop with its timers and its training log; only the imports are new.

    torchrun --nproc-per-node 2 examples/migrate/megatron_loop.py

Expected: one run with `lm_loss` and the rest of Megatron's names at 20 iterations, `forward-backward-time` as the
slowest rank's, its `/min` beside it, everything against `samples/` too, a line every 10 iterations on the last rank,
and at the end the timers of all ranks, which no collective gathered.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import otel_ml
from otel_ml.compat.megatron import (
    LoggerConfig,
    Timers,
    TrainingLog,
    across_ranks_string,
    on_save_checkpoint_success,
    progress_log,
    start,
)

RANK, WORLD_SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def main() -> None:
    config = LoggerConfig(
        log_interval=10, timing_log_level=1, log_timers_to_tensorboard=True, tensorboard_dir="tb", log_progress=True
    )
    run = start(config, {"lr": 1e-4, "model": {"layers": 2}}, experiment="megatron-loop")
    timers = Timers(config.timing_log_level, config.timing_log_option)
    log = TrainingLog(config, timers=timers, train_iters=20, seq_length=128)
    progress = progress_log(config, "checkpoints")
    for iteration in range(1, 21):
        timers("forward-backward", log_level=1).start()
        time.sleep(0.002 * (1 + RANK))
        timers("forward-backward").stop()
        log.log(
            iteration,
            {"lm loss": 1 / iteration},
            learning_rate=1e-4,
            global_batch_size=8,
            consumed_samples=8 * iteration,
            grad_norm=0.5,
        )
    if RANK == 0 and progress is not None:
        checkpoint = Path("checkpoints/iter_0000020")
        checkpoint.mkdir(parents=True)
        (checkpoint / "weights.bin").write_bytes(b"\x00" * 16)
        progress.saved(20, 1e12, 20 * 8 * 128)
        on_save_checkpoint_success(checkpoint, "checkpoints", 20, run)
    otel_ml.shutdown()
    if RANK == 0:
        print(across_ranks_string(run, world_size=WORLD_SIZE))


if __name__ == "__main__":
    main()
