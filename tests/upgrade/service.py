"""A service of one folder: `python service.py FOLDER NOW [--held]`; held, one exporter does not get on.

Its clock begins at NOW, seconds since the epoch: what was kept for years is taken up a moment after it was left.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from otel_ml_exporters import Exporter, Record, RetryableExportError, RunInfo, RunStatus, StepRecord
from otel_ml_service.config import Limits, ServiceConfig
from otel_ml_service.service import Service

__all__ = ["started"]

HELD = "--held" in sys.argv
HELD_AT = 5


class LinesExporter(Exporter):
    """One line a record; tells its position from the file."""

    max_batch = 3
    keeps_self_telemetry = True
    name = "lines"

    def start(self, run: RunInfo) -> None:
        self._path = run.dir / f"{self.name}.jsonl"
        self._path.touch()

    def position(self) -> int:
        content = self._path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        os.truncate(self._path, len(whole))
        lines = whole.splitlines()
        return int(json.loads(lines[-1])["seq"]) if lines else 0

    def export(self, records: Sequence[Record]) -> None:
        with self._path.open("a") as file:
            for record in records:
                line = {"kind": type(record).__name__, "seq": record.seq, **_content(record)}
                file.write(json.dumps(line, default=str) + "\n")

    def shutdown(self, timeout: float, status: RunStatus | None) -> None:
        pass


class HeldExporter(LinesExporter):
    """Is held at a record as long as the service is told so."""

    name = "held"
    max_batch = 1

    def export(self, records: Sequence[Record]) -> None:
        if HELD and records[-1].seq > HELD_AT:
            raise RetryableExportError("held", retry_after=60.0)
        super().export(records)


def _content(record: Record) -> dict[str, object]:
    if isinstance(record, StepRecord):
        where = {"role": record.role, "axis": record.axis, "step": record.step, "attempt": record.attempt}
        return {**where, "values": dict(record.values)}
    if hasattr(record, "spans"):
        return {"spans": [span.name for span in record.spans]}
    found = {name: getattr(record, name, None) for name in ("params", "values", "status", "text")}
    return {name: value for name, value in found.items() if value is not None}


def started(folder: Path, now: float) -> Service:
    """Start the service of a folder in this process, and say where it is in the folder's file `address`."""
    environ = {"OTEL_ML_LISTEN_HTTP": "127.0.0.1:0", "OTEL_ML_LISTEN_GRPC": "127.0.0.1:0"}
    config = ServiceConfig.load(directory=folder / "runs", environ=environ)
    config = replace(config, exporters={}, limits=replace(Limits(), retained=7_000, closed=2_400), end_silence_s=600.0)

    ahead = time.time() - now
    makers = {"lines": LinesExporter, "held": HeldExporter}
    service = Service(config, makers=makers, clock=lambda: time.time() - ahead)
    (folder / "address.new").write_text(service.start())
    (folder / "address.new").replace(folder / "address")
    return service


def main() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    started(Path(sys.argv[1]), float(sys.argv[2]))
    threading.Event().wait()


if __name__ == "__main__":
    main()
