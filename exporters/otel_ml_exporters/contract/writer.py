"""One life of an exporter in a process: `python -m otel_ml_exporters.contract.writer EXPORTER OPTIONS FOLDER LAST`.

Delivers the rows of `Stream` up to LAST as a service does, writes the `seq` of each mark to stdout, and keeps the last
in a file, where the next life finds it. It may be killed at any moment.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from otel_ml_exporters.contract.case import exporter_of
from otel_ml_exporters.contract.stream import Stream, run_in
from otel_ml_service.delivery.pipeline import Pipeline
from otel_ml_service.delivery.retries import RetryPolicy

__all__: list[str] = []

_CLOSE_S = 30.0
_LOOK_S = 0.01


def main(name: str, options: Mapping[str, object], folder: Path, last: int) -> None:
    """Deliver the rows up to `last`."""
    file = folder / "mark"

    def mark(seq: int, _: Mapping[str, int]) -> None:
        file.with_suffix(".new").write_text(str(seq), encoding="utf-8")
        file.with_suffix(".new").replace(file)
        sys.stdout.write(f"{seq}\n")
        sys.stdout.flush()

    def say(slug: str, sentence: str) -> None:
        sys.stderr.write(f"{sentence}\n")

    pipeline = Pipeline(
        name,
        lambda: exporter_of(name, options),
        run_in(folder),
        Stream(last),
        delivered=int(file.read_text(encoding="utf-8")) if file.exists() else 0,
        mark=mark,
        say=say,
        retry=RetryPolicy(0.01, 0.1),
    )
    pipeline.start()
    # One that cannot be made or started is tried for ever by a service; here nobody mends it meanwhile.
    while pipeline.behind and not pipeline.is_stopped and pipeline.status.state != "failed":
        time.sleep(_LOOK_S)
    # One that is behind by then was given up, and gets no more time.
    pipeline.ask_to_stop(0.0 if pipeline.behind else _CLOSE_S)
    sys.exit(0 if pipeline.join() and not pipeline.behind and not pipeline.status.lost else 1)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
