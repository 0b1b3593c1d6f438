"""Programs that have names of their own for run, rank and step are writers where the service knows these names."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import otel_ml
from tests.e2e.jobs import environment, processes, until
from tests.examples.test_plain_opentelemetry import service

STEPS = 8
RANK = Path(__file__).with_name("lens_rank.py" if sys.version_info >= (3, 13) else "lens_like_rank.py")
ALIASES = "aliases: {experiment: nemo.run.id, rank: dl.rank, world_size: dl.world_size, step: dl.iteration}\n"


def test_ranks_with_nemo_lens_are_one_run_with_one_value_a_step(tmp_path: Path) -> None:
    config = tmp_path / "otel-ml.yaml"
    config.write_text(ALIASES)
    wanted = {
        "nemo/dl.loss": (list(range(STEPS)), [0.5 + step for step in range(STEPS)]),
        "nemo/tokens": (list(range(STEPS)), [200.0] * STEPS),
    }

    with service(tmp_path, "--config", str(config)) as endpoint:
        env = environment(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
        ranks = [([sys.executable, str(RANK), str(rank), "2", str(STEPS)], env) for rank in range(2)]
        with processes(ranks, tmp_path) as running:
            assert [rank.wait(60) for rank in running] == [0, 0]
        until(lambda: shown(tmp_path) == wanted, seconds=30)
        until(lambda: spans(tmp_path) == {("train_step", rank, step) for rank in range(2) for step in range(STEPS)})


def shown(folder: Path) -> dict[str, object]:
    runs = [path.parent for path in folder.glob("otel-ml-runs/*/lens/metrics.jsonl")]
    return {name: values for run in runs for name, values in otel_ml.read(run).items() if "otel_ml/" not in name}


def spans(folder: Path) -> set[tuple[str, int, int]]:
    lines = [line for path in folder.glob("otel-ml-runs/*/lens/spans.jsonl") for line in path.read_text().splitlines()]
    found = map(json.loads, lines)
    return {(span["name"], span["rank"], span["step"]) for span in found}
