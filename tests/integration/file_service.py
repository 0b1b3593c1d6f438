"""A service as a process: `python file_service.py FOLDER [--embedded]`; its exporter appends to a file."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from otel_ml_exporters import Exporter, Record, RunInfo, RunStatus, StepRecord
from otel_ml_service.config import ServiceConfig
from otel_ml_service.serve import serve
from otel_ml_service.service import Service


class FileExporter(Exporter):
    """One line a record, synced; tells its position from the file."""

    max_batch = 3
    keeps_self_telemetry = True

    def start(self, run: RunInfo) -> None:
        self._path = run.dir / "records.jsonl"
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
                values = dict(record.values) if isinstance(record, StepRecord) else {}
                step = record.step if isinstance(record, StepRecord) else None
                kind = type(record).__name__
                file.write(json.dumps({"seq": record.seq, "kind": kind, "step": step, "values": values}) + "\n")

    def shutdown(self, timeout: float, status: RunStatus | None) -> None:
        pass


def main() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    folder = Path(sys.argv[1])
    rendezvous = folder / "rendezvous" if "--embedded" in sys.argv else None
    environ = {
        "OTEL_ML_EXPERIMENT_ID": "run-1",
        "OTEL_ML_LISTEN_HTTP": "127.0.0.1:0",
        "OTEL_ML_LISTEN_GRPC": "127.0.0.1:0",
    }
    config = ServiceConfig.load(directory=folder / "runs", rendezvous=rendezvous, environ=environ)

    def started(service: Service) -> None:
        (folder / "address.new").write_text(json.dumps([service.endpoint, service.token]))
        (folder / "address.new").replace(folder / "address")

    serve(replace(config, exporters={}), started, makers={"file": FileExporter})


if __name__ == "__main__":
    main()
