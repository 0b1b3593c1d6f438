"""Hydra: a job of a sweep; it does not end its run, as programs that hang on to the process do not."""

import hydra
from omegaconf import DictConfig

import otel_ml


@hydra.main(version_base=None, config_path=None)
def main(config: DictConfig) -> None:
    """Train with the sweep's value."""
    run = otel_ml.init("launched", exporters="jsonl")
    for step in range(5):
        otel_ml.log({"tokens": 1, "who": run.rank}, step=step, reduce="sum")


if __name__ == "__main__":
    main()
