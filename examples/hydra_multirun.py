"""A sweep with Hydra: each job is a run, though Hydra runs them one after the other in one process.

    python examples/hydra_multirun.py --multirun +rate=0.05,0.1,0.4

Expected: three runs in the experiment `sweep`, each with `loss` at the steps 0…19 of its own job and its configuration
as parameters. The first job does not end its run: the next one's `init()` does.
"""

from __future__ import annotations

from typing import Any

import hydra
from omegaconf import OmegaConf

import otel_ml


@hydra.main(version_base=None, config_path=None)
def main(config: Any) -> None:
    otel_ml.init("sweep", name=f"rate={config.rate}", params=OmegaConf.to_container(config))
    weight = 4.0
    for _ in otel_ml.steps(range(20)):
        weight -= config.rate * 2 * weight
        otel_ml.log({"loss": weight**2})


if __name__ == "__main__":
    main()
