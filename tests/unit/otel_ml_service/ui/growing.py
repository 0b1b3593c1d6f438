"""A run that is being recorded, and where a chart of it is on its page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.unit.otel_ml_service.ui.client import Client

__all__ = ["Growing", "chart_of"]


class Growing:
    """A run that is being recorded: rows are added to `metrics.jsonl`, as the exporter does."""

    def __init__(self, base: Path, experiment: str = "growing", run: str = "run-1") -> None:
        self.folder = base / experiment / run
        self.folder.mkdir(parents=True)
        self._seq = 0

    def step(self, step: int, **values: float) -> None:
        self.step_of("trainer", step, values)

    def step_of(self, role: str, step: int, values: Mapping[str, float]) -> None:
        self._seq += 1
        row = {"seq": self._seq, "role": role, "axis": "step", "step": step, "attempt": 0, "time": 1000.0 + step}
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({**row, "values": values}) + "\n")

    def spans(self, step: int, ranks: int, slow: int, role: str = "trainer") -> None:
        with (self.folder / "spans.jsonl").open("a") as file:
            for rank in range(ranks):
                at = step * 10**9
                for name, ms in (("forward", 50 if rank == slow else 20), ("all_reduce", 5)):
                    span = {"trace_id": "0" * 32, "span_id": "0" * 16, "parent_id": None, "name": name, "start_ns": at}
                    more = {"end_ns": at + ms * 10**6, "role": role, "rank": rank, "axis": "step", "step": step}
                    file.write(json.dumps({"seq": 1, **span, **more}, separators=(",", ":")) + "\n")
                    at += ms * 10**6


def chart_of(client: Client, run: str, title: str) -> str:
    page = client.get(f"run/{run}/").body
    after = page.split('data-chart="')[1:]
    return next(part.partition('"')[0] for part in after if f"<b>{title}</b>" in part)
