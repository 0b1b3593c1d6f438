"""Five steps of one rank: `tokens` counts the ranks of the run, `who` is the sum of their numbers."""

import otel_ml


def train() -> None:
    """Train as a run."""
    with otel_ml.init("launched", exporters="jsonl") as run:
        for step in range(5):
            otel_ml.log({"tokens": 1, "who": run.rank}, step=step, reduce="sum")


if __name__ == "__main__":
    train()
