"""A trainer's logging written for verl; only the line of its import is another one.

    python examples/migrate/verl_script.py

Expected: `actor/pg_loss` and `critic/rewards/mean` at steps 1…10 with verl's line of each on stdout, the final
validation's `val/score` at step 10 though nothing is finished by hand, and the table `val/generations`.
"""

from __future__ import annotations

from otel_ml.compat.verl import Tracking, ValidationGenerationsLogger


def main() -> None:
    tracking = Tracking(
        project_name="migrate-verl",
        experiment_name="first",
        default_backend=["console", "tensorboard"],
        config={"actor": {"lr": 1e-6}},
    )
    generations = ValidationGenerationsLogger()
    for step in range(1, 11):
        tracking.log(data={"actor/pg_loss": 1 / step, "critic/rewards/mean": step / 10}, step=step)
    generations.log(["wandb"], [("2+2", "4", 1.0), ("3+3", "7", 0.0)], 10)
    tracking.log(data={"val/score": 0.5}, step=10)


if __name__ == "__main__":
    main()
