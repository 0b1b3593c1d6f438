"""A GRPO driver that logs as NeMo RL's do; only the imports are otel_ml's.

    python examples/migrate/nemo_rl_grpo.py
    python examples/migrate/nemo_rl_grpo.py tensorboard mlflow wandb

A softmax policy learns to add two digits: real group-relative advantages, a real policy gradient, no GPU.
Expected: below `logs/exp_001` a run with `train/reward` rising over steps 1…10, `validation/accuracy` at 0, 5 and 10,
`timing/train/*` at every step, `ray/node.0.mem_gb` over an axis of its own, two timeline plots, a histogram of rewards,
one file of samples a step, and three samples on the console at each validation.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from otel_ml.compat.nemo_rl import (  # was: nemo_rl.utils.logger, nemo_rl.utils.timer
    Logger,
    TimeoutChecker,
    Timer,
    get_next_experiment_dir,
    log_container_init_timing,
    print_message_log_samples,
    write_checkpoint_status,
)

STEPS, GENERATIONS, VALIDATE_EVERY = 10, 16, 5
PROMPTS = [(a, b) for a in range(5) for b in range(5)]


def configuration(backends: list[str]) -> dict[str, Any]:
    return {
        "grpo": {"num_prompts_per_step": len(PROMPTS), "num_generations_per_prompt": GENERATIONS, "lr": 40.0},
        "logger": {
            "log_dir": get_next_experiment_dir("logs"),
            "num_val_samples_to_print": 3,
            **{f"{name}_enabled": name in backends for name in ("wandb", "tensorboard", "mlflow", "swanlab")},
            "monitor_gpus": False,
            "wandb": {"project": "grpo-dev", "name": "addition"},
            "tensorboard": {},
            "mlflow": {"experiment_name": "grpo-dev", "run_name": "addition"},
        },
    }


class Policy:
    def __init__(self, seed: int) -> None:
        self.logits = np.zeros((len(PROMPTS), 10))
        self.rng = np.random.default_rng(seed)

    def probabilities(self) -> np.ndarray:
        shifted = np.exp(self.logits - self.logits.max(axis=1, keepdims=True))
        return shifted / shifted.sum(axis=1, keepdims=True)

    def generate(self, count: int) -> np.ndarray:
        """Return answers (prompts, count)."""
        below = self.probabilities().cumsum(axis=1)[:, None, :] < self.rng.random((len(PROMPTS), count, 1))
        return below.sum(axis=2).clip(max=9)

    def train(self, answers: np.ndarray, advantages: np.ndarray, lr: float) -> float:
        """Follow the policy gradient; return its norm."""
        chosen = np.eye(10)[answers] - self.probabilities()[:, None, :]
        gradient = (advantages[..., None] * chosen).mean(axis=1) / len(PROMPTS)
        self.logits += lr * gradient
        return float(np.linalg.norm(gradient))


def rewards_of(answers: np.ndarray) -> np.ndarray:
    return (answers == np.array([a + b for a, b in PROMPTS])[:, None]).astype(np.float64)


def message_logs(answers: np.ndarray) -> list[list[dict[str, str]]]:
    return [
        [{"role": "user", "content": f"What is {a} + {b}?"}, {"role": "assistant", "content": str(answer)}]
        for (a, b), answer in zip(PROMPTS, answers, strict=True)
    ]


def validate(logger: Logger, timer: Timer, policy: Policy, step: int, num_samples: int) -> None:
    with timer.time("total_validation_time"):
        answers = policy.generate(1)
        rewards = rewards_of(answers)[:, 0]
    print_message_log_samples(message_logs(answers[:, 0]), rewards.tolist(), num_samples, step)
    logger.log_metrics({"accuracy": rewards.mean(), "rewards": rewards}, step, prefix="validation")
    timings = timer.get_timing_metrics("sum")
    logger.log_metrics(timings, step, prefix="timing/validation", step_finished=step == 0)
    timer.reset()


def train_step(logger: Logger, timer: Timer, policy: Policy, step: int, lr: float) -> None:
    with timer.time("total_step_time"):
        with timer.time("generation"):
            answers = policy.generate(GENERATIONS)
        rewards = rewards_of(answers)
        with timer.time("advantage_calculation"):
            advantages = (rewards - rewards.mean(axis=1, keepdims=True)) / (rewards.std(axis=1, keepdims=True) + 1e-6)
        with timer.time("policy_training"):
            norm = policy.train(answers, advantages, lr)
    content = [log for answer in answers.T for log in message_logs(answer)]
    logger.log_batched_dict_as_jsonl(
        {"content": content, "rewards": rewards.T.ravel(), "advantages": advantages.T.ravel()},
        f"train_data_step{step}.jsonl",
    )
    metrics = {"reward": rewards.mean(), "grad_norm": norm, "advantages": {"max": advantages.max()}, "lr": lr}
    logger.log_metrics(metrics, step, prefix="train")
    logger.log_histogram(rewards.mean(axis=1).tolist(), step, "train/prompt_rewards")
    timings = timer.get_timing_metrics("sum")
    logger.log_metrics({"samples_per_sec": rewards.size / timings["total_step_time"]}, step, prefix="performance")
    logger.log_metrics(timings, step, prefix="timing/train", step_finished=True)
    timer.reset()


def main() -> None:
    begin = time.perf_counter()
    cfg = configuration(sys.argv[1:] or ["tensorboard"])
    logger, timer = Logger(cfg["logger"]), Timer({"worker": "driver"})
    timeout = TimeoutChecker("00:01:00:00", fit_last_save_time=True)
    log_container_init_timing()
    logger.log_hyperparams(cfg)
    logger.log_metrics({"total": time.perf_counter() - begin}, 0, prefix="timing/setup")

    policy, num_samples = Policy(seed=0), cfg["logger"]["num_val_samples_to_print"]
    validate(logger, timer, policy, 0, num_samples)
    timeout.start_iterations()
    for step in range(1, STEPS + 1):
        # A monitor of the cluster counts seconds, which outrun the steps.
        seconds = 60 * step
        monitored = {"ray/ray_step": seconds, "node.0.mem_gb": 12.0 + step}
        logger.log_metrics(monitored, seconds, prefix="ray", step_metric="ray/ray_step")
        if step % VALIDATE_EVERY == 0:
            validate(logger, timer, policy, step, num_samples)
        train_step(logger, timer, policy, step, cfg["grpo"]["lr"])
        timeout.mark_iteration()
        if timeout.check_save() or step == STEPS:
            write_checkpoint_status(f"{cfg['logger']['log_dir']}/checkpoints", step)
    running = {worker: [4.0, 3.0, 1.0 + worker] for worker in range(2)}
    logger.log_plot_per_worker_timeline_metrics(running, STEPS, "generation_metrics", "running_requests", 0.5)
    logger.finish()


if __name__ == "__main__":
    main()
