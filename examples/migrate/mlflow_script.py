"""A script written for MLflow's fluent interface; only the line of its import is another one.

    python examples/migrate/mlflow_script.py

Expected: `train_loss` at steps 0…29, `test_acc` at the last step, `trial-0/acc` and `trial-1/acc` from nested runs, the
parameters `lr` and `trial-1.depth`, the text `notes.txt`, and the table `predictions.json`.
"""

from __future__ import annotations

from otel_ml.compat import mlflow


def main() -> None:
    mlflow.set_experiment("migrate-mlflow")
    with mlflow.start_run(run_name="first", tags={"team": "vision"}):
        mlflow.log_param("lr", 0.1)
        for step in range(30):
            mlflow.log_metric("train_loss", 1 / (1 + step), step=step)
        mlflow.log_metric("test_acc", 0.75)
        for depth in range(2):
            with mlflow.start_run(run_name=f"trial-{depth}", nested=True):
                mlflow.log_param("depth", depth)
                mlflow.log_metric("acc", depth / 2)
        mlflow.log_text("fine", "notes.txt")
        mlflow.log_table({"input": ["a", "b"], "output": ["c", "d"]}, "predictions.json")


if __name__ == "__main__":
    main()
